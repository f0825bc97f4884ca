"""Results go to stdout, everything for people to stderr."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

from elmore._messages import SILENT, Progress, shown
from elmore.errors import ElmoreError

__all__ = ["make_progress", "one_line", "say", "write_json", "write_result"]

# Of one message; a terminal of 80 columns shows it in five lines.
_MOST_CHARACTERS = 380


def one_line(message: object) -> str:
    """Make any message fit into one line of bounded length."""
    return shown(message, _MOST_CHARACTERS)


def say(line: str) -> None:
    """Write a line for people on stderr; a stderr that is gone is no reason to fail."""
    if sys.stderr is None:
        return  # print would take stdout instead
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr)


def write_result(text: str) -> None:
    """Write a result to stdout: UTF-8 whatever the locale."""
    if sys.stdout is None:
        raise ElmoreError("stdout is closed; open it to see the result")
    sys.stdout.buffer.write(f"{text}\n".encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()


def write_json(value: Any) -> None:
    """Write a report to stdout as JSON."""
    write_result(json.dumps(value, indent=2, ensure_ascii=False))


def make_progress(
    *, unit: str, total: int | None = None, quiet: bool = False, what: str | None = None
) -> Progress:
    """Make a bar on stderr, where that is a terminal.

    Args:
        unit: what is counted; bytes ("B") are shown as kB, MB, ...
        total: how many there are, if known.
        quiet: show nothing.
        what: stands before the bar.
    """
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        return SILENT
    from tqdm import tqdm

    # It disappears when done; the summary stays.
    bar: Progress = tqdm(
        total=total,
        unit=unit if unit == "B" else f" {unit}",
        unit_scale=unit == "B",
        desc=what,
        file=sys.stderr,
        leave=False,
    )
    return bar

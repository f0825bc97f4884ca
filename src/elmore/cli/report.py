"""Output: results go to stdout, everything for people to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from elmore.base.messages import Progress, progress_of, say, shown
from elmore.errors import ElmoreError

if TYPE_CHECKING:
    from elmore.formats.checkpoint import Checkpoint
    from elmore.text.reading import Counts

__all__ = [
    "make_progress",
    "one_line",
    "reading_notes",
    "say",
    "say_waiting",
    "several",
    "write_json",
    "write_result",
]

# Of one message: a terminal with 80 columns shows it in five lines.
_MAX_CHARACTERS = 380


def one_line(message: object) -> str:
    """Make any message fit into one line of bounded length."""
    return shown(message, _MAX_CHARACTERS)


def say_waiting(inputs: Sequence[str], *, quiet: bool) -> None:
    """Explain the silence of a verb that was given no input in a terminal."""
    if not inputs and not quiet and sys.stdin is not None and sys.stdin.isatty():
        say("reading from the terminal; end with Ctrl-D")


def several(n: int, noun: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def reading_notes(counts: Counts, checkpoint: Checkpoint) -> list[str]:
    """What a reader of the result should know about the text that was read."""
    notes = [f"{counts.empty} empty"] if counts.empty else []
    if counts.cut and checkpoint.alphabet is not None:
        unit = "bytes" if checkpoint.alphabet.kind == "bytes" else "characters"
        # Two of them mark the start and end of a word.
        kept = checkpoint.alphabet.max_chars - 2
        notes.append(f"{several(counts.cut, 'token')} cut at {kept} {unit}")
    for n, what in ((counts.replaced, "replaced"), (counts.skipped, "skipped")):
        if n:
            notes.append(f"{several(n, 'line')} with invalid UTF-8 {what}")
    return notes


def write_result(text: str) -> None:
    """Write a result to stdout: UTF-8 whatever the locale."""
    if sys.stdout is None:
        raise ElmoreError("stdout is closed; open it to see the result")
    sys.stdout.buffer.write(f"{text}\n".encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()


def write_json(value: Any) -> None:
    """Write a report to stdout as JSON."""
    write_result(json.dumps(value, indent=2, ensure_ascii=False))


def make_progress(*, unit: str, total: int | None = None, quiet: bool = False) -> Progress:
    """A bar on stderr if that is a terminal and the work lasts longer than a second."""
    return progress_of(False if quiet else None, unit=unit, total=total)

"""What people are shown: values in messages, and progress."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Sized
from typing import Any, Protocol

from elmore.errors import ConfigError

# What a terminal obeys instead of printing it: control characters of ASCII and Latin-1, line
# separators, and the marks that turn the direction of the text around them.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def shown(value: object, limit: int = 90) -> str:
    """Make any text fit into a one-line message: escape what does not print, cut the middle.

    Args:
        value: a name, path or value that may come from a hostile file.
        limit: the maximum number of characters of the result.
    """
    text = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(value)
    )
    if len(text) <= limit:
        return text
    head = (limit - 1) // 3  # the end of a path says more than its start
    return f"{text[:head]}…{text[head + 1 - limit :]}"


def printable(text: str) -> str:
    """Text of a corpus for a terminal: one line, without characters that control a terminal.

    An escape sequence loses its escape character and becomes visible. Letters, joiners and
    combining marks of all scripts stay.
    """
    line = _CONTROL.sub(lambda match: " " if match[0].isspace() else "", text)
    # Lone surrogates, which a broken text may hold, cannot be encoded.
    return line.encode("utf-8", "replace").decode()


def spreadsheet_safe(cell: str) -> str:
    """Text for a cell of CSV or TSV that a spreadsheet must not take for a formula."""
    if not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell  # a number


def wants_colour(stream: Any) -> bool:
    """Whether to write colours: to a terminal, unless NO_COLOR is set (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(getattr(stream, "isatty", bool)())


def readable_bytes(n: float) -> str:
    """A size for people: 3.1 MB."""
    for unit in ("bytes", "kB", "MB"):
        if round(n) < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:,.1f} GB"


def readable_time(seconds: float) -> str:
    """A length of time for people: 2.5 hours."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.3g} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:,.1f} hours"


class Progress(Protocol):
    """What long work reports to. The caller decides whether anything is shown."""

    def update(self, n: int) -> object:
        """Count `n` more items."""

    def close(self) -> object:
        """End the report."""


# What `progress=` takes. None shows a bar where somebody is watching and the work lasts longer
# than a second; a function gets (done, total), where total is None if nobody knows it.
ProgressOption = Progress | Callable[[int, int | None], object] | bool | None
# Work that is over sooner shows no bar.
_DELAY = 1.0
# tqdm draws a bar without any delay before the first update.
_AT_ONCE = 1e-9


class _Reporter:
    """Reports to a function; the caller or nobody closes what is behind it."""

    def __init__(self, update: Callable[[int], object]) -> None:
        self.update = update

    def close(self) -> None:
        """Leave it to its owner."""


SILENT = _Reporter(lambda n: None)


def progress_of(
    option: ProgressOption,
    *,
    unit: str,
    total: int | None = None,
    name: str | None = None,
    delay: float = _DELAY,
) -> Progress:
    """What the work reports to, by the argument `progress=` of a call; close it at the end.

    Args:
        option: what the user passed.
        unit: what is counted; "B" for bytes.
        total: how many there are, if known.
        name: what the bar is called.
        delay: seconds before a bar appears that nobody asked for.
    """
    if option is None or isinstance(option, bool):
        if not (is_watched() if option is None else option):
            return SILENT
        asked = option is True
        delay = _AT_ONCE if asked else delay
        bar: Progress = make_bar(unit=unit, total=total, desc=name, leave=asked, delay=delay)
        return bar
    update = getattr(option, "update", None)
    if callable(update):
        return _Reporter(update)
    if not callable(option):
        raise ConfigError(
            f"progress={shown(repr(option), 40)}; use True, False, None or a function that takes "
            "(done, total)"
        )
    tell, done = option, 0

    def count(n: int) -> None:
        nonlocal done
        done += n
        tell(done, total)

    return _Reporter(count)


def size_of(items: object) -> int | None:
    """How many items there are, or None for a generator."""
    return len(items) if isinstance(items, Sized) else None


def make_bar(
    *,
    unit: str,
    total: int | None,
    desc: str | None,
    leave: bool,
    scale: bool = False,
    delay: float = _AT_ONCE,
) -> Any:
    """Make a bar of tqdm: a widget in a notebook, else a line on stderr."""
    with warnings.catch_warnings():
        # Where ipywidgets is missing, tqdm draws with text; that needs no warning.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm
    is_bytes = unit == "B"
    return tqdm(
        total=total,
        unit=unit if is_bytes else f" {unit}",
        unit_scale=is_bytes or scale,
        desc=desc,
        leave=leave,
        delay=delay,
    )


def is_watched() -> bool:
    """Whether somebody watches the work: in a terminal, or in a notebook."""
    # The shell of a notebook has a kernel. Programs that run notebooks import ipykernel too.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return wants_reports() and (sys.stderr.isatty() or hasattr(shell, "kernel"))


def wants_reports() -> bool:
    """Whether anything may be written that nobody asked for."""
    # `elmore --quiet` raises the level, and so can a program that wants silence.
    return sys.stderr is not None and logging.getLogger("elmore").isEnabledFor(logging.WARNING)


def say(line: str) -> None:
    """Write a line for people on stderr; a closed stderr is not a reason to fail."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")

"""Output of verbs: results go to stdout, everything for people to stderr."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from elmore.base.messages import Progress, progress_of, say, shown
from elmore.errors import ConfigError, ElmoreError

if TYPE_CHECKING:
    from elmore.formats.checkpoint import Checkpoint
    from elmore.text.reading import Counts

__all__ = [
    "Console",
    "check_new",
    "common",
    "fitted",
    "one_line",
    "several",
    "write_json",
    "write_result",
]

# Of one message: a terminal with 80 columns shows it in five lines.
_MAX_CHARACTERS = 380
Function = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Console:
    """What a verb may tell, as --json, --quiet and --verbose say."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False

    def say(self, line: str) -> None:
        """Write a line for people on stderr, unless --quiet."""
        if not self.quiet:
            say(line)

    def progress(
        self, unit: str, total: int | None = None
    ) -> contextlib.AbstractContextManager[Progress]:
        """A bar on stderr if that is a terminal and the work lasts longer than a second."""
        return contextlib.closing(
            progress_of(False if self.quiet else None, unit=unit, total=total)
        )

    def waiting(self, inputs: Sequence[str]) -> None:
        """Explain the silence of a verb that was given no input in a terminal."""
        if not inputs and sys.stdin is not None and sys.stdin.isatty():
            self.say("reading from the terminal; end with Ctrl-D")

    def notes(self, counts: Counts, checkpoint: Checkpoint, *more: str) -> None:
        """Say what a reader of the result should know about the text that was read."""
        if notes := [*reading_notes(counts, checkpoint), *more]:
            self.say(f"read {several(counts.sentences, 'sentence')}: {', '.join(notes)}")

    def warn_if_misleading(self, oov_rate: float) -> None:
        """Say when so many words are unknown that a perplexity should not be quoted alone."""
        from elmore.language_model.perplexity import misleading

        if (warning := misleading(oov_rate)) is not None:
            self.say(f"elmore: warning: {warning}")


def common(*, json: bool = True) -> Callable[[Function], Function]:
    """--json, -q, -v and --debug; the function gets them as `console`."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def run(**given: Any) -> Any:
            names = ("json", "quiet", "verbose")
            console = Console(**{name: given.pop(name) for name in names if name in given})
            given.pop("debug")  # `main` has seen it
            with _reporting(console), _offline(given.pop("offline", False)):
                return function(console=console, **given)

        switch = functools.partial(click.option, is_flag=True)
        made: Function = switch("--debug", help="Show the traceback of an error.")(run)
        made = switch("-v", "--verbose", help="Print more.")(made)
        made = switch("-q", "--quiet", help="Print errors only.")(made)
        return switch("--json", help="Print the report as JSON.")(made) if json else made

    return decorate


@contextlib.contextmanager
def _reporting(console: Console) -> Iterator[None]:
    """Show the log and warnings on stderr, as -v and -q say."""
    logger = logging.getLogger("elmore")
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    before = logger.level
    logger.addHandler(handler)
    level = logging.INFO if console.verbose else logging.WARNING
    logger.setLevel(logging.ERROR if console.quiet else level)

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        console.say(f"elmore: warning: {one_line(message)}")

    try:
        with warnings.catch_warnings():
            # Only warnings for users. Deprecations are for developers, who see them in the tests.
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = show
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextlib.contextmanager
def _offline(wanted: bool) -> Iterator[None]:
    """Forbid the network while a verb runs, for child processes too: hence the environment."""
    if not wanted:
        yield
        return
    before = os.environ.get("ELMORE_OFFLINE")
    os.environ["ELMORE_OFFLINE"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["ELMORE_OFFLINE"]
        else:
            os.environ["ELMORE_OFFLINE"] = before


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"elmore: {record.levelname.lower()}: {one_line(record.getMessage())}"


def one_line(message: object) -> str:
    """Make any message fit into one line of bounded length."""
    return shown(message, _MAX_CHARACTERS)


def several(n: int, noun: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def reading_notes(counts: Counts, checkpoint: Checkpoint) -> list[str]:
    """What was unusual in the text that was read."""
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


def fitted(text: str) -> str:
    """Cut the lines of a table at the width of the terminal; a pipe or a file gets all of them."""
    if sys.stdout is None or not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size((100, 24)).columns
    lines = text.split("\n")
    return "\n".join(line if len(line) <= width else f"{line[: width - 1]}…" for line in lines)


def check_new(path: Path | None, *, force: bool) -> None:
    """Refuse a file that exists before the work is done, unless --force."""
    if path is not None and path.exists() and not force:
        raise ConfigError(f"'{path}' exists; pass --force to replace it")

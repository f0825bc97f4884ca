"""Output of verbs: results go to stdout, everything for people to stderr."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmore.base.messages import Progress, progress_of, say, shown
from elmore.errors import ConfigError, ElmoreError

# Of one message: a terminal with 80 columns shows it in five lines.
_MAX_CHARACTERS = 380


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

    def result(self, value: Any, text: str) -> None:
        """Write a result to stdout, as JSON or as text."""
        write_result(json.dumps(value, indent=2, ensure_ascii=False) if self.json else text)

    def done(self, facts: dict[str, Any], line: str) -> None:
        """Report what a verb has written to a file: a line on stderr, or JSON on stdout."""
        if self.json:
            self.result(facts, line)
        else:
            self.say(line)

    def progress(
        self, unit: str, total: int | None = None
    ) -> contextlib.AbstractContextManager[Progress]:
        """A bar on stderr if that is a terminal and the work lasts longer than a second."""
        return contextlib.closing(
            progress_of(False if self.quiet else None, unit=unit, total=total)
        )

    def warn_if_misleading(self, oov_rate: float) -> None:
        """Say when so many words are unknown that a perplexity should not be quoted alone."""
        from elmore.language_model.perplexity import misleading

        if (warning := misleading(oov_rate)) is not None:
            self.say(f"elmore: warning: {warning}")

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Show the log and warnings on stderr, as -v and -q say."""
        logger = logging.getLogger("elmore")
        handler = logging.StreamHandler()
        handler.setFormatter(_OneLine())
        before = logger.level
        logger.addHandler(handler)
        level = logging.INFO if self.verbose else logging.WARNING
        logger.setLevel(logging.ERROR if self.quiet else level)

        def show(message: Warning | str, *_: object, **__: object) -> None:
            self.say(f"elmore: warning: {one_line(message)}")

        try:
            with warnings.catch_warnings():
                # Only those for users. Developers see deprecations in the tests.
                warnings.simplefilter("ignore")
                warnings.simplefilter("default", UserWarning)
                warnings.showwarning = show
                yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"elmore: {record.levelname.lower()}: {one_line(record.getMessage())}"


def one_line(message: object) -> str:
    """Make any message fit into one line of bounded length."""
    return shown(message, _MAX_CHARACTERS)


def described(facts: Mapping[str, Any], indent: str = "") -> str:
    """Facts for people: a line for each, tables in tables indented."""
    lines = []
    for key, value in facts.items():
        name = f"{indent}{shown(key.replace('_', ' '))}"
        if isinstance(value, Mapping) and value:
            lines += [name, described(value, indent + "  ")]
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            rows = (", ".join(f"{k} {_fact(v)}" for k, v in row.items()) for row in value)
            lines += [f"{name:<20}{row}" for row in rows]
        else:
            lines.append(f"{name:<20}{_fact(value)}")
    return "\n".join(lines)


def _fact(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(v) if isinstance(v, list | tuple) else _fact(v) for v in value)
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:.5g}"
    return "none" if value is None else shown(value, 300)


def several(n: int, noun: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def write_result(text: str) -> None:
    """Write a result to stdout: UTF-8 whatever the locale."""
    if sys.stdout is None:
        raise ElmoreError("stdout is closed; open it to see the result")
    sys.stdout.buffer.write(f"{text}\n".encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()


@contextlib.contextmanager
def line_writer(output: Path | None, force: bool) -> Iterator[Any]:
    """A function that writes lines to a file, which appears when it is complete, or to stdout."""
    if output is None:
        yield write_result
        return
    from elmore.base.atomic import atomic_file

    with atomic_file(output, overwrite=force) as file:
        yield lambda line: file.write(f"{line}\n".encode("utf-8", "backslashreplace"))


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


def check_picture(path: Path | None, *, force: bool) -> None:
    """Refuse a picture before the work is done: matplotlib may be missing."""
    from elmore import report

    check_new(path, force=force)
    if path is not None:
        report.check_picture(path)


def check_report(path: Path | None, *more: str, force: bool) -> None:
    """Refuse a file for a report before the work is done; `more` are further suffixes."""
    from elmore import report

    check_new(path, force=force)
    if path is not None:
        report.check_suffix(path, *more)

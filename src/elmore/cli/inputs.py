"""From files, packed or not, or stdin to sentences; memory is bounded by a line or paragraph."""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from elmore._io import open_text, read_lines
from elmore._messages import shown
from elmore.embedding.reading import Counts, SentenceMaker, TextReader
from elmore.errors import ConfigError, ElmoreError
from elmore.limits import LIMITS
from elmore.text.sentence import Sentence

if TYPE_CHECKING:
    from elmore.embedding.elmo import Elmo

__all__ = ["Counts", "Reader", "check_files", "check_inputs", "make_reader", "read_input"]

_STDIN = "-"


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How files and stdin become sentences."""

    texts: TextReader
    sentences: SentenceMaker

    def read(self, inputs: Sequence[str], counts: Counts) -> Iterator[tuple[str, Sentence]]:
        """Yield each sentence as text and as tokens, and count."""
        for name in inputs or [_STDIN]:
            with _open(name) as stream:
                what = "stdin" if name == _STDIN else name
                for text in self.texts.texts(stream, what, counts):
                    yield text, self.sentences.make(text, counts)


def make_reader(args: argparse.Namespace, elmo: Elmo) -> Reader:
    """Make the reader of a verb's inputs, from the flags of `flags.add_inputs`."""
    return Reader(
        texts=TextReader(split_sentences=args.split_sentences, errors=args.errors),
        sentences=SentenceMaker.of(elmo, tokenized=args.tokenized),
    )


def check_inputs(inputs: Sequence[str], output: Path | None) -> None:
    """Refuse what cannot be read, before any work; and an input that is the output too."""
    target = _status(output)
    for name in inputs or [_STDIN]:
        if _piped(name):
            continue  # its bytes come once: opening it only to look would lose them
        with _open(name) as stream:
            source = _status(stream if name == _STDIN else Path(name))
        if source and target and stat.S_ISREG(source.st_mode) and os.path.samestat(source, target):
            raise ConfigError(
                f"'{shown(name, 120)}' is input and output at once; choose another -o"
            )


def check_files(inputs: Sequence[str]) -> None:
    """Refuse what cannot be read twice: a run that goes on later starts from the top again."""
    for name in inputs or [_STDIN]:
        if name == _STDIN or _piped(name):
            what = "stdin" if name == _STDIN else f"'{shown(name, 120)}'"
            raise ConfigError(
                f"--workers reads its input again when it goes on, and {what} can be read once; "
                "save it to a file first"
            )
    check_inputs(inputs, None)


def read_input(name: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of an input with their numbers; - is stdin."""
    with _open(name) as stream:
        what = "stdin" if name == _STDIN else name
        yield from read_lines(stream, what=what, max_line=LIMITS.text_line_bytes)


def _status(file: Path | BinaryIO | None) -> os.stat_result | None:
    """Give the state of a file, or of stdout for None; None where there is no such thing."""
    try:
        if isinstance(file, Path):
            return file.stat()
        return os.fstat((sys.stdout if file is None else file).fileno())
    except (OSError, ValueError, AttributeError):
        return None


@contextlib.contextmanager
def _open(name: str) -> Iterator[BinaryIO]:
    if name == _STDIN:
        if sys.stdin is None:
            raise ElmoreError("stdin is closed; name an input file")
        yield sys.stdin.buffer
        return
    if _piped(name):
        with open(name, "rb") as stream:
            yield stream
        return
    with open_text(Path(name), what="input") as text:
        yield text


def _piped(name: str) -> bool:
    """Tell whether a name is the shell's <(command)."""
    try:
        return name != _STDIN and stat.S_ISFIFO(os.stat(name).st_mode)
    except (OSError, ValueError):
        return False  # open_checked says why

"""From files, packed or not, or stdin to sentences; memory is bounded by a line or paragraph."""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from elmore._io import open_text, read_lines
from elmore._messages import shown
from elmore.errors import ConfigError, ElmoreError, InputError
from elmore.limits import LIMITS
from elmore.text.sentence import Sentence
from elmore.text.sentences import sentence_spans

if TYPE_CHECKING:
    from elmore.embedding.elmo import Elmo

__all__ = ["Counts", "Reader", "check_inputs", "make_reader", "read_input"]

_STDIN = "-"
# A paragraph is looked through for sentences as soon as it is this long, in characters.
_PARAGRAPH = 1 << 16


@dataclass
class Counts:
    """What was met on the way."""

    sentences: int = 0
    tokens: int = 0
    empty: int = 0
    cut: int = 0
    replaced: int = 0
    skipped: int = 0


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How lines become sentences.

    Attributes:
        tokenize: splits a sentence by the model's convention.
        count_cut: counts tokens that the model does not see whole.
        tokenized: lines are tokens separated by spaces.
        split_sentences: lines are running text.
        errors: what to do with invalid UTF-8.
    """

    tokenize: Callable[[str], Sentence]
    count_cut: Callable[[Sequence[str]], int]
    tokenized: bool = False
    split_sentences: bool = False
    errors: Literal["strict", "replace", "skip"] = "strict"

    def read(self, inputs: Sequence[str], counts: Counts) -> Iterator[tuple[str, Sentence]]:
        """Yield each sentence as text and as tokens, and count."""
        for name in inputs or [_STDIN]:
            lines = self._lines(name, counts)
            for text in _sentences(lines, name) if self.split_sentences else lines:
                sentence = _spaced(text) if self.tokenized else self.tokenize(text)
                counts.sentences += 1
                counts.tokens += len(sentence)
                counts.empty += not sentence.tokens
                counts.cut += self.count_cut(sentence.tokens)
                yield text, sentence

    def _lines(self, name: str, counts: Counts) -> Iterator[str]:
        def count(_: int) -> None:
            if self.errors == "skip":
                counts.skipped += 1
            else:
                counts.replaced += 1

        what = "stdin" if name == _STDIN else name
        with _open(name) as stream:
            lines = read_lines(
                stream,
                what=what,
                max_line=LIMITS.text_line_bytes,
                errors=self.errors,
                on_invalid=count,
            )
            for _, line in lines:
                yield line


def make_reader(args: argparse.Namespace, elmo: Elmo) -> Reader:
    """Make the reader of a verb's inputs, from the flags of `flags.add_inputs`."""
    alphabet = elmo.checkpoint.alphabet if elmo.config.tokens.n_characters else None
    return Reader(
        tokenize=elmo.tokenize,
        count_cut=alphabet.count_cut if alphabet is not None else lambda tokens: 0,
        tokenized=args.tokenized,
        split_sentences=args.split_sentences,
        errors=args.errors,
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


def _spaced(line: str) -> Sentence:
    # str.split() would also split at U+00A0 and its like, which may stand inside tokens.
    return Sentence(tuple(token for token in line.split(" ") if token))


def _sentences(lines: Iterator[str], name: str) -> Iterator[str]:
    """Split running text; a paragraph ends at a blank line and at the end of a file."""
    parts: list[str] = []
    size, room = 0, _PARAGRAPH
    for line in lines:
        if not line.strip():
            yield from _split("\n".join(parts))
            parts, size, room = [], 0, _PARAGRAPH
            continue
        parts.append(line)
        size += len(line) + 1
        if size < room:
            continue
        text = "\n".join(parts)
        spans = sentence_spans(text)
        for start, end in spans[:-1]:
            yield text[start:end]
        # Where the last one ends is not certain before the next word is seen: it stays.
        parts = [text[spans[-1][0] :]]
        size = len(parts[0])
        if size > LIMITS.text_line_bytes:
            raise InputError(
                f"a sentence is longer than the {LIMITS.text_line_bytes} characters allowed; put "
                "blank lines between paragraphs",
                file=name,
            )
        room = max(_PARAGRAPH, 2 * size)
    yield from _split("\n".join(parts))


def _split(text: str) -> Iterator[str]:
    for start, end in sentence_spans(text):
        yield text[start:end]

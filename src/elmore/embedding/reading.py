"""From the bytes of text files to sentences; memory is bounded by a line or paragraph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Literal

from elmore._io import read_lines
from elmore.errors import InputError
from elmore.limits import LIMITS
from elmore.text.sentence import Sentence
from elmore.text.sentences import sentence_spans

if TYPE_CHECKING:
    from elmore.embedding.elmo import Elmo

__all__ = ["Counts", "Errors", "SentenceMaker", "TextReader"]

Errors = Literal["strict", "replace", "skip"]
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
class TextReader:
    """How files become texts of one sentence each.

    Attributes:
        split_sentences: lines are running text.
        errors: what to do with invalid UTF-8.
    """

    split_sentences: bool = False
    errors: Errors = "strict"

    def texts(self, stream: BinaryIO, name: str, counts: Counts) -> Iterator[str]:
        """Yield each sentence of a stream, and count the lines that are not UTF-8.

        Args:
            stream: the file.
            name: its name for messages.
            counts: where to count.
        """
        lines = self._lines(stream, name, counts)
        return _sentences(lines, name) if self.split_sentences else lines

    def _lines(self, stream: BinaryIO, name: str, counts: Counts) -> Iterator[str]:
        def count(_: int) -> None:
            if self.errors == "skip":
                counts.skipped += 1
            else:
                counts.replaced += 1

        lines = read_lines(
            stream,
            what=name,
            max_line=LIMITS.text_line_bytes,
            errors=self.errors,
            on_invalid=count,
        )
        for _, line in lines:
            yield line


@dataclass(frozen=True, kw_only=True)
class SentenceMaker:
    """How a text becomes tokens.

    Attributes:
        tokenize: splits a sentence by the model's convention.
        count_cut: counts tokens that the model does not see whole.
        tokenized: texts are tokens separated by spaces.
    """

    tokenize: Callable[[str], Sentence]
    count_cut: Callable[[Sequence[str]], int]
    tokenized: bool = False

    @classmethod
    def of(cls, elmo: Elmo, *, tokenized: bool) -> SentenceMaker:
        """Make one for a model."""
        alphabet = elmo.checkpoint.alphabet if elmo.config.tokens.n_characters else None
        return cls(
            tokenize=elmo.tokenize,
            count_cut=alphabet.count_cut if alphabet is not None else lambda tokens: 0,
            tokenized=tokenized,
        )

    def make(self, text: str, counts: Counts) -> Sentence:
        """Split a text, and count."""
        sentence = _spaced(text) if self.tokenized else self.tokenize(text)
        counts.sentences += 1
        counts.tokens += len(sentence)
        counts.empty += not sentence.tokens
        counts.cut += self.count_cut(sentence.tokens)
        return sentence


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

"""A list of words with ids: the targets of a language model, or the rows of a word table."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from elmore.base.io import invalid_utf8, open_checked
from elmore.errors import FormatError
from elmore.limits import LIMITS

BEGIN, END, UNKNOWN = "<S>", "</S>", "<UNK>"


@dataclass(frozen=True)
class Specials:
    """How a vocabulary is looked up: the words that replace others, and where words are cut.

    Attributes:
        begin: the word that opens a sentence.
        end: the word that closes it.
        unknown: the word for all that are not listed.
        longest: characters after which a word is cut before it is looked up; None for never.
    """

    begin: str = BEGIN
    end: str = END
    unknown: str = UNKNOWN
    longest: Annotated[int, Meta(ge=1, le=LIMITS.max_chars)] | None = None


USUAL = Specials()


class Vocabulary:
    """Words in id order; the special words are found by name, wherever they are."""

    def __init__(
        self, words: Iterable[str], *, what: str = "vocabulary", specials: Specials = USUAL
    ) -> None:
        self.words = tuple(words)
        self.specials = specials
        self._ids = {word: k for k, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            seen: set[str] = set()
            for k, word in enumerate(self.words):
                if word in seen:
                    raise FormatError(f"{what}:{k + 1} repeats {word!r}; keep each word once")
                seen.add(word)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"Vocabulary({reprlib.repr(self.words)}, n_words={len(self)})"

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Vocabulary)
            and self.words == other.words
            and self.specials == other.specials
        )

    def __hash__(self) -> int:
        return hash(self.words)

    @property
    def unknown(self) -> int | None:
        """The id of the unknown word (`<UNK>`), or None where the list has no such word."""
        return self._ids.get(self.specials.unknown)

    @property
    def markers(self) -> tuple[str, str]:
        """The words that open and close a sentence."""
        return self.specials.begin, self.specials.end

    def find(self, word: str) -> int | None:
        """The id of a word, or None."""
        return self._ids.get(word)

    def encode(self, words: Sequence[str]) -> NDArray[np.int64]:
        """The ids of words, (n_words,); unknown ones get the id of the unknown word."""
        unknown, longest = self.unknown, self.specials.longest
        if longest is not None:
            words = [word[:longest] for word in words]
        if unknown is None:
            missing = [word for word in words if word not in self._ids]
            if missing:
                raise FormatError(
                    f"{missing[0]!r} is not in the vocabulary, which has no "
                    f"{self.specials.unknown} either; add a line {self.specials.unknown} to it"
                )
            # Never used: every word was found.
            unknown = -1
        ids = self._ids
        return np.fromiter((ids.get(word, unknown) for word in words), np.int64, len(words))

    @classmethod
    def read(cls, path: Path | str) -> Vocabulary:
        """Read a vocabulary file: one word per line, in id order."""
        with open_checked(Path(path), what="vocabulary") as stream:
            return cls.from_stream(stream, what=str(path))

    @classmethod
    def from_stream(cls, stream: BinaryIO, *, what: str, specials: Specials = USUAL) -> Vocabulary:
        """Read a vocabulary from an open file; bilm-tf's `!!!MAXTERMID` line is skipped."""
        data = stream.read(LIMITS.vocabulary_bytes + 1)
        if len(data) > LIMITS.vocabulary_bytes:
            raise FormatError(
                f"{what} has over {LIMITS.vocabulary_bytes} bytes; is it a vocabulary?"
            )
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            place = error.start - (data.rfind(b"\n", 0, error.start) + 1)
            line = data.count(b"\n", 0, error.start) + 1
            raise invalid_utf8(place, what, line, choice=False) from None
        if not text:
            raise FormatError(f"{what} is empty; a vocabulary has one word on each line")
        # Not U+3000 and its kin: they are words of some models.
        words = [line.strip(" \t\r") for line in text.removesuffix("\n").split("\n")]
        if "" in words:
            number = words.index("") + 1
            raise FormatError(f"{what}:{number} is blank; keep one word on each line")
        return cls((word for word in words if word != "!!!MAXTERMID"), what=what, specials=specials)

    def to_bytes(self) -> bytes:
        """The contents of a vocabulary file: one word per line."""
        return "".join(f"{word}\n" for word in self.words).encode("utf-8")

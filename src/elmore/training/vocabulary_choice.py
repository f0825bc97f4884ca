"""Which words become targets: the most frequent, or those of a file."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elmore._messages import shown
from elmore.errors import ConfigError, FormatError
from elmore.limits import LIMITS
from elmore.text.vocabulary import BEGIN, END, UNKNOWN, Vocabulary
from elmore.training.word_counts import WordCounts

__all__ = ["VocabularyChoice"]

_SPECIALS = (BEGIN, END, UNKNOWN)
_DEFAULT_WORDS = 50_000
# Below this rank correlation with our counts a list of words is not one sorted by frequency.
_SORTED = 0.5


@dataclass(frozen=True, kw_only=True)
class VocabularyChoice:
    """Which words become targets: the most frequent, or those of a file.

    Attributes:
        size: the number of words, specials included.
        min_count: the least count of a word.
        file: a vocabulary to be used as it is.
        name: of its file.
    """

    size: int | None = None
    min_count: int | None = None
    file: Vocabulary | None = None
    name: str = ""

    @classmethod
    def of(
        cls, vocabulary: int | str | os.PathLike[str] | None, min_count: int | None
    ) -> VocabularyChoice:
        """Read the arguments of `prepare`."""
        if min_count is not None and min_count < 1:
            raise ConfigError(f"min_count={min_count} keeps nothing out; pass 1 or more")
        if vocabulary is None:
            return cls(size=_DEFAULT_WORDS if min_count is None else None, min_count=min_count)
        if isinstance(vocabulary, int):
            if not len(_SPECIALS) < vocabulary <= LIMITS.vocabulary_lines:
                raise ConfigError(
                    f"vocabulary={vocabulary} is out of range; pass a number of words from "
                    f"{len(_SPECIALS) + 1} to {LIMITS.vocabulary_lines}, or a file"
                )
            return cls(size=vocabulary, min_count=min_count)
        if min_count is not None:
            raise ConfigError("min_count cannot cut a vocabulary file; leave one of them out")
        words, name = Vocabulary.read(Path(vocabulary)), os.fspath(vocabulary)
        missing = [word for word in _SPECIALS if word not in words]
        if missing:
            raise FormatError(
                f"'{shown(name, 120)}' lacks {', '.join(missing)}; add a line for each, "
                "best at the top"
            )
        return cls(file=words, name=name)

    def described(self) -> int | str | None:
        """Give what prepared.json tells."""
        return shown(self.name, 1000) if self.file is not None else self.size

    def make(self, counts: WordCounts) -> Vocabulary:
        """Choose the words; warn about a file that is not sorted by frequency."""
        if self.file is not None:
            if _falls([counts[word] for word in self.file if word not in _SPECIALS]) < _SORTED:
                warnings.warn(
                    f"'{shown(self.name, 120)}' is not sorted by falling frequency in this text; "
                    "a sampled softmax will draw the wrong words: sort it or make a new one",
                    stacklevel=3,
                )
            return self.file
        words = list(_SPECIALS)
        for word, count in counts.ranked():
            if len(words) == self.size or count < (self.min_count or 1):
                break
            if word not in _SPECIALS and _storable(word):
                words.append(word)
        return Vocabulary(words)


def _storable(word: str) -> bool:
    """Tell whether a word comes back from a vocabulary file, whose lines are stripped."""
    return (
        word.strip() == word != "!!!MAXTERMID"
        and len(word.encode("utf-8")) <= LIMITS.vocabulary_line_bytes
    )


def _falls(counts: list[int]) -> float:
    """Give the rank correlation of counts with falling ones: 1 when they fall, -1 when they rise.

    A list from another text never falls throughout; a list by the alphabet is near 0.
    """
    values = np.array([count for count in counts if count], np.int64)
    if len(values) < 2 or values.min() == values.max():
        return 1.0
    _, groups, sizes = np.unique(-values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[groups]  # equal counts share a rank
    best = np.corrcoef(np.sort(ranks), np.arange(len(ranks)))[0, 1]
    return float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1] / best)

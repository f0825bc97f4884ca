"""The words of a corpus: how often they occur, which the model predicts, vectors to start from."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from elmore.base.io import open_checked, read_lines
from elmore.base.messages import shown
from elmore.errors import ConfigError, FormatError
from elmore.limits import LIMITS
from elmore.text.vocabulary import BEGIN, END, UNKNOWN, Vocabulary

_SPECIALS = (BEGIN, END, UNKNOWN)
_DEFAULT_WORDS = 50_000
# Below this correlation with our counts, a list of words is not sorted by frequency.
_SORTED = 0.5


# --------------------------------------------------------------------------- counts


class WordCounts(Counter[str]):
    """How often each word occurs."""

    def ranked(self) -> list[tuple[str, int]]:
        """Words and counts, the most frequent first, equal ones by code points."""
        return sorted(self.items(), key=lambda item: (-item[1], item[0]))

    def covered(self, vocabulary: Vocabulary) -> int:
        """Count the tokens that are in a vocabulary; those spelled `<UNK>` are not."""
        return sum(self[word] for word in vocabulary if word != UNKNOWN)


def read_counts(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the words and counts of a file, in its order.

    Raises:
        FormatError: a line is not word TAB count.
    """
    with open_checked(path, what="counts", follow=False) as stream:
        for number, line in read_lines(stream, what=str(path), max_line=LIMITS.text_line_bytes):
            word, tab, count = line.rpartition("\t")  # a token of --tokenized text may hold tabs
            if not tab or not count.isdecimal():
                raise FormatError(
                    f"'{shown(path, 120)}':{number} is not a word, a tab and a number; prepare or "
                    "copy it again"
                )
            yield word, int(count)


# --------------------------------------------------------------------------- vocabulary


class VocabularyChoice:
    """Which words the model predicts: the most frequent, or those of a file.

    Args:
        vocabulary: the number of words, with the specials, or a vocabulary file to use as it is.
            By default 50,000, without words that occur once unless `min_count` is given.
        min_count: words must occur at least this often.
    """

    def __init__(
        self, vocabulary: int | str | os.PathLike[str] | None, min_count: int | None
    ) -> None:
        if min_count is not None and min_count < 1:
            raise ConfigError(f"min_count={min_count} is out of range; pass 1 or more")
        self._automatic = vocabulary is None and min_count is None
        self._size = _DEFAULT_WORDS if self._automatic else None
        self._min_count, self._file, self._name = min_count, None, ""
        if isinstance(vocabulary, int):
            if not len(_SPECIALS) < vocabulary <= LIMITS.vocabulary_lines:
                raise ConfigError(
                    f"vocabulary={vocabulary} is out of range; pass a number of words from "
                    f"{len(_SPECIALS) + 1} to {LIMITS.vocabulary_lines}, or a file"
                )
            self._size = vocabulary
        elif vocabulary is not None:
            if min_count is not None:
                raise ConfigError("min_count and a vocabulary file cannot be combined; pass one")
            self._file, self._name = Vocabulary.read(Path(vocabulary)), os.fspath(vocabulary)
            missing = [word for word in _SPECIALS if word not in self._file]
            if missing:
                raise FormatError(
                    f"'{shown(self._name, 120)}' lacks {', '.join(missing)}; add a line for each, "
                    "ideally at the top"
                )

    def described(self) -> int | str | None:
        """What prepared.json says."""
        return shown(self._name, 1000) if self._file is not None else self._size

    def make(self, counts: WordCounts) -> Vocabulary:
        """Choose the words; warn about a file that is not sorted by frequency."""
        if self._file is not None:
            if (
                _sortedness([counts[word] for word in self._file if word not in _SPECIALS])
                < _SORTED
            ):
                warnings.warn(
                    f"'{shown(self._name, 120)}' is not sorted by frequency in this text, so a "
                    "sampled softmax will draw the wrong words; sort it or make a new one",
                    stacklevel=3,
                )
            return self._file
        lowest = self._min_count or 1
        # A vocabulary of all words leaves no <UNK> to learn from, and unseen text is full of them.
        if self._automatic and max(counts.values(), default=0) > 1:
            lowest = 2
        words = list(_SPECIALS)
        for word, count in counts.ranked():
            if len(words) == self._size or count < lowest:
                break
            if word not in _SPECIALS and _storable(word):
                words.append(word)
        return Vocabulary(words)

    def notes(self, counts: WordCounts, words: Vocabulary) -> list[str]:
        """What to know about an automatic choice that left out words which occur once."""
        left = sum(word not in words for word in counts) if self._automatic else 0
        if not left or len(words) == self._size:
            return []
        share = 1 - counts.covered(words) / counts.total()
        return [
            f"words that occur once are not in the vocabulary: {left:,}, {share:.1%} of the "
            "tokens; <UNK> is learned from them, --min-count 1 keeps them"
        ]


def _storable(word: str) -> bool:
    """Whether a word survives a vocabulary file, whose lines are stripped when read."""
    return (
        # !!!MAXTERMID is a line of bilm-tf's vocabularies, which readers skip.
        word.strip() == word != "!!!MAXTERMID"
        and len(word.encode("utf-8")) <= LIMITS.vocabulary_line_bytes
    )


def _sortedness(counts: list[int]) -> float:
    """How well counts fall with their rank: 1 if perfectly (Zipf's law), -1 if they rise.

    A list from another text is never sorted perfectly; an alphabetical one is near 0.
    """
    values = np.array([count for count in counts if count], np.int64)
    if len(values) < 2 or values.min() == values.max():
        return 1.0
    ranks = np.arange(1, len(values) + 1)
    return -float(np.corrcoef(np.log(values), np.log(ranks))[0, 1])

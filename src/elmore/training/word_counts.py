"""How often words occur, in memory and as a file of lines: word TAB count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from elmore._io import open_checked, read_lines
from elmore._messages import shown
from elmore.errors import FormatError
from elmore.limits import LIMITS
from elmore.text.vocabulary import UNKNOWN, Vocabulary

__all__ = ["WordCounts", "read_counts"]

# Counting more types than this takes over half a gigabyte.
_MOST_TYPES = 5_500_000


class WordCounts:
    """How often each word occurs, in bounded memory.

    Args:
        most_types: when there are more distinct words, the rarest are dropped, half or more.

    Attributes:
        n_tokens: all words counted.
        pruned: how often words were dropped; 0 when all counts are exact.
    """

    def __init__(self, *, most_types: int = _MOST_TYPES) -> None:
        self._counts: dict[str, int] = {}
        self._most_types = most_types
        self.n_tokens = 0
        self.pruned = 0

    def __len__(self) -> int:
        return len(self._counts)

    def __getitem__(self, word: str) -> int:
        return self._counts.get(word, 0)

    def add(self, words: Iterable[str], counts: Iterable[int]) -> None:
        """Count words, each as often as told."""
        known, get = self._counts, self._counts.get
        for word, count in zip(words, counts, strict=True):
            known[word] = get(word, 0) + count
            self.n_tokens += count
        if len(known) > self._most_types:
            kept = self._most_types // 2
            values = np.fromiter(known.values(), np.int64, len(known))
            least = int(np.partition(values, len(known) - kept)[len(known) - kept])
            self._counts = {word: count for word, count in known.items() if count > least}
            self.pruned += 1

    def ranked(self) -> Iterator[tuple[str, int]]:
        """Give words and counts by falling count, equal ones by code points."""
        words = sorted(self._counts)
        counts = np.fromiter((self._counts[word] for word in words), np.int64, len(words))
        order = np.argsort(-counts, kind="stable")
        for start in range(0, len(order), 1 << 16):  # a list of all would double the memory
            for k in order[start : start + (1 << 16)].tolist():
                yield words[k], int(counts[k])

    def covered(self, vocabulary: Vocabulary) -> int:
        """Count the tokens that are in a vocabulary; those spelled `<UNK>` are not."""
        return sum(self[word] for word in vocabulary if word != UNKNOWN)


def read_counts(path: Path) -> Iterator[tuple[str, int]]:
    """Read words and their counts, as they stand in the file.

    Raises:
        FormatError: a line is not word TAB count.
    """
    with open_checked(path, what="counts", follow=False) as stream:
        for number, line in read_lines(stream, what=str(path), max_line=LIMITS.text_line_bytes):
            word, tab, count = line.rpartition("\t")  # a ready-made token may hold tabs
            if not tab or not count.isdecimal():
                raise FormatError(
                    f"'{shown(path, 120)}':{number} is not a word, a tab and a number; prepare or "
                    "copy it again"
                )
            yield word, int(count)

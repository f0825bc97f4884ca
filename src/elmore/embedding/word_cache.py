"""Vectors of words that were computed before."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from elmore.text.batching import Batch

Array = NDArray[np.float32]

# Bytes of one of the two generations; 13,000 words of the original model, 33,000 of the small.
_GENERATION_BYTES = 32 << 20
# What a word takes besides its numbers: its key of 50 ids, an array object, a place in a dict.
_ENTRY_BYTES = 500


class WordCache:
    """Remembers the token layer of words; bounded, and safe to share between threads.

    A word is known by its ids, not by its spelling: spellings that are cut to the same ids share
    a vector. The cache has two generations: when the young one is full it becomes the old one,
    and words that are met again move up. What was not met for a complete generation is forgotten.

    Args:
        dim: size of a vector.
        generation_bytes: size of one generation.
    """

    def __init__(self, dim: int, *, generation_bytes: int = _GENERATION_BYTES) -> None:
        self._dim = dim
        self._capacity = generation_bytes // (dim * 4 + _ENTRY_BYTES)
        self._young: dict[bytes, Array] = {}
        self._old: dict[bytes, Array] = {}
        self._lock = threading.Lock()

    def fetch(self, batch: Batch, compute: Callable[[NDArray[np.int64]], Array]) -> Array:
        """The vectors of a batch's words, (n_words, dim).

        Args:
            batch: the words.
            compute: the vectors of some of the words, by their positions, (n, dim).
        """
        keys = _word_keys(batch)
        result = np.empty((len(keys), self._dim), np.float32)
        missing: list[int] = []
        with self._lock:
            for k, key in enumerate(keys):
                vector = self._find(key)
                if vector is None:
                    missing.append(k)
                else:
                    result[k] = vector
        if missing:
            # Without the lock: two threads may compute the same word, but neither waits.
            positions = np.asarray(missing, np.int64)
            fresh = compute(positions)
            result[positions] = fresh
            with self._lock:
                for k, vector in zip(missing, fresh, strict=True):
                    self._keep(keys[k], vector)
        return result

    def clear(self) -> None:
        """Forget all words."""
        with self._lock:
            self._young, self._old = {}, {}

    def _find(self, key: bytes) -> Array | None:
        vector = self._young.get(key)
        if vector is None:
            vector = self._old.pop(key, None)
            if vector is not None:
                self._keep(key, vector)
        return vector

    def _keep(self, key: bytes, vector: Array) -> None:
        if len(self._young) >= self._capacity:
            self._old, self._young = self._young, {}
        if self._capacity:
            # A view would keep the vectors of the complete batch in memory.
            self._young[key] = vector.copy()


def _word_keys(batch: Batch) -> list[bytes]:
    """Bytes that are equal for two words exactly if the model cannot tell them apart."""
    parts = [part for part in (batch.words, batch.word_ids) if part is not None]
    rows = [[row.tobytes() for row in part] for part in parts]
    return rows[0] if len(rows) == 1 else [a + b for a, b in zip(*rows, strict=True)]

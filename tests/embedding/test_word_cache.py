"""Vectors of words that were computed before: in memory and in files."""

from __future__ import annotations

import numpy as np

from elmore.embedding.word_cache import WordCache
from elmore.text.batching import Batch, TokenIndexer
from elmore.text.characters import ByteAlphabet

DIM = 3
indexer = TokenIndexer(ByteAlphabet(6))


class Computer:
    """Counts what is asked of it; the vector of a word is made of its ids."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.asked: list[int] = []

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        self.asked += positions.tolist()
        return vectors_of(self.batch)[positions]


def vectors_of(batch: Batch) -> np.ndarray:
    assert batch.words is not None
    return np.stack([batch.words[:, k] for k in (1, 2, 3)], axis=1).astype(np.float32)


def fetch(cache: WordCache, *tokens: str) -> int:
    """Fetch a sentence, check every vector, and give the number of words that were computed."""
    batch = indexer.batch([list(tokens)])
    computer = Computer(batch)
    np.testing.assert_array_equal(cache.fetch(batch, computer), vectors_of(batch))
    return len(computer.asked)


def test_a_word_is_computed_once() -> None:
    cache = WordCache(DIM)
    assert fetch(cache, "a", "b", "a") == 4  # with the two markers
    assert fetch(cache, "b", "a") == 0
    assert fetch(cache, "c") == 1


def test_words_that_are_cut_alike_share_a_vector() -> None:
    cache = WordCache(DIM)
    fetch(cache, "abcdX")
    assert fetch(cache, "abcdY", "abcdZ") == 0  # 4 bytes of each are seen


def test_it_is_bounded_and_forgets_what_is_not_met() -> None:
    cache = WordCache(DIM, generation_bytes=4 * (DIM * 4 + 500))  # two generations of 4 words
    for k in range(100):
        fetch(cache, "often", f"w{k}")
        assert len(cache._young) <= 4
        assert len(cache._old) <= 4
    assert fetch(cache, "often") == 0
    assert fetch(cache, "w0") == 1


def test_kept_vectors_are_copies() -> None:
    """The block that a batch computed is not held in memory by one word of it."""
    cache = WordCache(DIM)
    batch = indexer.batch([["a"]])
    result = cache.fetch(batch, Computer(batch))
    result.fill(9)
    assert fetch(cache, "a") == 0
    assert all(vector.base is None for vector in cache._young.values())

"""Means of the uses of words, and groups of vectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from elmore import Elmo
from elmore.embedding import centroids
from elmore.embedding.centroids import first_centres, k_means, word_centroids
from elmore.embedding.results import unit
from elmore.text.tokenizer import Sentence

TEXT = [
    Sentence(tuple(line.split()))
    for line in ("the bank of the river", "", "no such word", "a bank lent money", "river bank")
]


def uses_of(elmo: Elmo, word: str, layers: str = "mean") -> np.ndarray:
    vectors = elmo.embed([sentence.tokens for sentence in TEXT], layers=layers, tokenized=True)
    return np.stack(
        [
            vector
            for sentence, rows in zip(TEXT, vectors, strict=True)
            for token, vector in zip(sentence.tokens, rows, strict=True)
            if token == word
        ]
    )


@pytest.mark.parametrize("layers", ["mean", "top"])
def test_a_word_is_the_mean_of_its_uses(tiny_elmo: Elmo, layers: str) -> None:
    found = word_centroids(
        tiny_elmo, iter(TEXT), ["river", "unmet", "bank", "money"], layers=layers
    )
    assert [(one.word, one.n_uses) for one in found] == [("bank", 3), ("river", 2), ("money", 1)]
    for one in found:
        expected = uses_of(tiny_elmo, one.word, layers).mean(axis=0)
        np.testing.assert_allclose(one.vector, expected, atol=1e-5)


def test_the_text_is_read_as_it_is_computed(tiny_elmo: Elmo) -> None:
    """Beyond a window nothing waits."""
    longest = 0
    done = 0

    def stream() -> Iterator[Sentence]:
        nonlocal longest
        for k in range(5000):
            longest = max(longest, k - done)
            yield TEXT[k % len(TEXT)]

    uses = centroids._uses(tiny_elmo, stream(), {"bank": 0}, "mean")
    for _ in uses:
        done += 1
    assert done == 3000
    assert longest < 5000 - 1024


def test_two_tight_groups_come_apart() -> None:
    """Whatever the draws, and no more groups than different points."""
    points = unit(np.array([[1, 0, 0.1]] * 4 + [[0, 1, 0.1]] * 6, np.float32))
    for seed in range(5):
        centres = first_centres(points, 5, np.random.default_rng(seed))
        assert len(centres) == 2
        groups = k_means(points, centres)
        assert len(set(groups[:4])) == len(set(groups[4:])) == 1
        assert groups[0] != groups[-1]


def test_a_word_that_is_listed_twice_counts_once(tiny_elmo: Elmo) -> None:
    found = word_centroids(tiny_elmo, [Sentence(("the", "bank"))], ["bank", "the", "bank"])
    assert sorted(one.word for one in found) == ["bank", "the"]

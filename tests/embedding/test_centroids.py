"""Means of the uses of words, and of groups of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from elmore import Elmo
from elmore.embedding import centroids
from elmore.embedding.centroids import sense_centroids, word_centroids
from elmore.errors import ConfigError
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

    uses = centroids._uses(tiny_elmo, stream(), {"bank": 0}, "mean", 4096)
    for _ in uses:
        done += 1
    assert done == 3000
    assert longest < 5000 - 1024


def test_senses_are_groups_of_uses(tiny_elmo: Elmo) -> None:
    """Two tight bundles of uses come apart, whatever the seed."""
    text = [Sentence(("x", "bank"))] * 4 + [Sentence(("bank", *"other words follow".split()))] * 6
    first, second = (tiny_elmo.embed([s.tokens], tokenized=True)[0] for s in (text[0], text[-1]))
    for seed in range(5):
        found = sense_centroids(tiny_elmo, iter(text), ["bank"], senses=2, seed=seed)
        assert [(one.word, one.n_uses) for one in found] == [("bank%1", 6), ("bank%2", 4)]
        np.testing.assert_allclose(found[0].vector, second[0], atol=1e-5)
        np.testing.assert_allclose(found[1].vector, first[1], atol=1e-5)


def test_no_more_groups_than_different_uses(tiny_elmo: Elmo) -> None:
    found = sense_centroids(tiny_elmo, [TEXT[0]] * 3, ["bank", "the"], senses=5)
    assert [(one.word, one.n_uses) for one in found] == [("the%1", 3), ("the%2", 3), ("bank%1", 3)]


def test_a_sample_of_the_uses_is_kept(tiny_elmo: Elmo) -> None:
    text = [Sentence(("the", "bank"))] * 200 + [Sentence(("bank", "lent"))] * 200
    found = sense_centroids(tiny_elmo, iter(text), ["bank"], senses=2, uses=50)
    assert sum(one.n_uses for one in found) == 50
    assert len(found) == 2
    assert min(one.n_uses for one in found) > 10  # from all of the text, not from its start
    again = sense_centroids(tiny_elmo, iter(text), ["bank"], senses=2, uses=50)
    assert all(np.array_equal(a.vector, b.vector) for a, b in zip(found, again, strict=True))


def test_refusals(tiny_elmo: Elmo) -> None:
    with pytest.raises(ConfigError, match="uses >= senses"):
        sense_centroids(tiny_elmo, TEXT, ["bank"], senses=3, uses=2)


def test_a_word_that_is_listed_twice_counts_once(tiny_elmo: Elmo) -> None:
    text = [Sentence(("the", "bank"))]
    for found in (
        word_centroids(tiny_elmo, text, ["bank", "the", "bank"]),
        sense_centroids(tiny_elmo, text, ["bank", "the", "bank"], senses=1),
    ):
        assert sorted(one.word.partition("%")[0] for one in found) == ["bank", "the"]


def test_uses_that_take_too_much_memory(tiny_elmo: Elmo, monkeypatch: pytest.MonkeyPatch) -> None:
    text = [Sentence(("the", "bank"))] * 4
    assert sense_centroids(tiny_elmo, text, ["bank"], senses=1)
    monkeypatch.setattr(centroids, "_MOST_BYTES", 3 * tiny_elmo.dim * 4)
    with pytest.raises(ConfigError, match="list fewer words or keep fewer uses"):
        sense_centroids(tiny_elmo, text, ["bank"], senses=1)

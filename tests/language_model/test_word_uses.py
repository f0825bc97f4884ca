"""elmore.language_model.word_uses."""

from __future__ import annotations

import numpy as np
import pytest

from elmore import Elmo, cosine
from elmore.language_model.word_uses import (
    find_uses,
    inner_products,
    repeated_words,
    shared_word,
    similarity,
    use_layers,
)
from elmore.text.vocabulary import Vocabulary

SENTENCES = [
    ["I", "sat", "on", "the", "bank", "."],
    ["The", "BANK", "lent", "the", "bank", "money", "."],
    ["Nothing", "."],
]


def test_uses_are_found_however_they_are_capitalised() -> None:
    assert find_uses(SENTENCES, "Bank") == ((0, 4), (1, 1), (1, 4))
    assert find_uses(SENTENCES, "ban") == ()


def test_words_that_are_used_twice() -> None:
    assert repeated_words(SENTENCES) == [("the", 3), ("bank", 3)]
    assert repeated_words([["a", "b"], []]) == []


def test_the_word_that_tells_most() -> None:
    words = ["<S>", "</S>", "<UNK>", "the", "in", "a", "of", *(f"w{k}" for k in range(500)), "bank"]
    vocabulary = Vocabulary(words)
    assert shared_word(SENTENCES, vocabulary) == "bank"
    assert shared_word(SENTENCES) == "bank"  # the longer one
    many = [["the", "plant"], ["the", "plant"], *[["the", str(k)] for k in range(2)]]
    assert shared_word(many, vocabulary) == "plant"  # unknown, so rare
    assert shared_word([["a", "b", "."], ["c", "."]], vocabulary) is None


@pytest.mark.parametrize("layers", ["mean", "top", 0, [0.5, -0.2, 1.5]])
def test_similarity_is_that_of_the_mixed_vectors(tiny_elmo: Elmo, layers: object) -> None:
    found = use_layers(tiny_elmo.layers(SENTENCES, tokenized=True), find_uses(SENTENCES, "bank"))
    vectors = tiny_elmo.embed(SENTENCES, layers=layers, tokenized=True)  # type: ignore[arg-type]
    chosen = np.stack([vectors[0][4], vectors[1][1], vectors[1][4]])
    np.testing.assert_allclose(similarity(found, layers), cosine(chosen, chosen), atol=1e-5)  # type: ignore[arg-type]


def test_inner_products_say_all(tiny_elmo: Elmo) -> None:
    found = use_layers(tiny_elmo.layers(SENTENCES, tokenized=True), find_uses(SENTENCES, "bank"))
    weights = np.array([0.5, -0.2, 1.5])
    inner = np.einsum("l,iljm,m->ij", weights, inner_products(found), weights)
    lengths = np.sqrt(np.diag(inner))
    wanted = similarity(found, list(weights))
    np.testing.assert_allclose(inner / np.outer(lengths, lengths), wanted, atol=1e-5)

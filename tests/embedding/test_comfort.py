"""What users of other libraries expect: similarity, similar words, tables, familiar names."""

from __future__ import annotations

import numpy as np
import pytest

from elmore import Elmo, cosine
from elmore.errors import ConfigError

GUITAR = "A man is playing a guitar on the street."
MUSIC = "Someone plays the guitar outside."
LAW = "The parliament passed the new tax law on Monday."


@pytest.fixture(scope="module")
def english() -> Elmo:
    return Elmo.load()


# --------------------------------------------------------------------------- comparing


def test_similarity_of_sentences(english: Elmo) -> None:
    near, far = english.similarity(GUITAR, MUSIC), english.similarity(GUITAR, LAW)
    assert type(near) is float
    assert near > far + 0.2
    assert english.similarity(GUITAR, [MUSIC, LAW]) == pytest.approx([near, far], abs=1e-5)
    assert np.shape(english.similarity([GUITAR, LAW], [MUSIC, LAW, LAW])) == (2, 3)
    assert english.similarity(GUITAR, "") == 0


def test_similarity_uses_the_best_pooling_that_the_model_has(
    english: Elmo, tiny_elmo: Elmo
) -> None:
    for elmo, pool in ((english, "sif"), (tiny_elmo, "mean")):
        expected = cosine(elmo.encode(GUITAR, pool=pool), elmo.encode(MUSIC, pool=pool))
        assert elmo.similarity(GUITAR, MUSIC) == pytest.approx(expected, abs=1e-6)
    mean = cosine(english.encode(GUITAR), english.encode(MUSIC))
    assert english.similarity(GUITAR, MUSIC, pool="mean") == pytest.approx(mean, abs=1e-6)


def test_normalized_vectors_have_length_one(tiny_elmo: Elmo) -> None:
    vectors = tiny_elmo.encode([GUITAR, LAW, ""], normalize=True)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 0], abs=1e-6)
    assert np.linalg.norm(tiny_elmo.encode(GUITAR, normalize=True)) == pytest.approx(1, abs=1e-6)
    plain = tiny_elmo.encode([["It", "fell"]], tokenized=True)
    scaled = tiny_elmo.encode([["It", "fell"]], normalize=True, tokenized=True)
    np.testing.assert_allclose(plain / np.linalg.norm(plain), scaled, atol=1e-6)


def words(found: list[tuple[str, float]]) -> list[str]:
    return [word for word, _ in found]


def test_similar_words_depend_on_the_context(english: Elmo) -> None:
    river = english.most_similar("bank", context="They sat on the bank of the river .")
    money = english.most_similar("bank", context="The bank raised its interest rates .")
    assert "shore" in words(river)
    assert "company" in words(money)
    assert not {"shore", "edge"} & set(words(money))
    for found in (river, money):
        scores = [score for _, score in found]
        assert len(found) == 10
        assert scores == sorted(scores, reverse=True)
        assert 0 < sum(scores) < 1
        assert "bank" not in words(found)


def test_similar_words_without_a_context(english: Elmo) -> None:
    found = english.most_similar("bank", k=3)
    assert words(found)[0] == "banks"
    assert 0 < found[0][1] < 1
    assert words(english.most_similar("BANK", k=3)) == words(found)
    with pytest.raises(ConfigError, match=r"'qzx' is not in the vocabulary; give a sentence"):
        english.most_similar("qzx")


def test_a_context_may_be_tokens_and_must_have_the_word(english: Elmo) -> None:
    tokens = ["They", "sat", "on", "the", "Bank", "of", "the", "river", "."]
    assert "shore" in words(english.most_similar("bank", context=tokens))
    assert words(english.most_similar("qzx", context="They sat on the qzx of the river ."))
    with pytest.raises(ConfigError, match="the context has no 'bank'"):
        english.most_similar("bank", context="They sat .")
    with pytest.raises(ConfigError, match="k=0"):
        english.most_similar("bank", k=0)


# --------------------------------------------------------------------------- tables


def test_a_table_of_tokens(tiny_elmo: Elmo) -> None:
    table = tiny_elmo.to_pandas(["It fell .", "", "Yes ."], layers=1)
    assert table.index.names == ["sentence", "position", "token"]
    assert [*table.index][:2] == [(0, 0, "It"), (0, 1, "fell")]
    assert table.loc[2].shape == (2, tiny_elmo.dim)
    np.testing.assert_allclose(table.loc[0], tiny_elmo.embed("It fell .", layers=1), atol=1e-6)
    assert tiny_elmo.to_pandas([]).shape == (0, tiny_elmo.dim)


def test_a_table_of_sentences(tiny_elmo: Elmo) -> None:
    table = tiny_elmo.to_pandas(["It fell .", "Yes ."], pool="max")
    assert [*table.index] == ["It fell .", "Yes ."]
    np.testing.assert_allclose(table.loc["Yes ."], tiny_elmo.encode("Yes .", pool="max"), atol=1e-6)

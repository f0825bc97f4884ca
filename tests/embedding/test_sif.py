"""pool="sif": its definition in plain numpy, and the same vectors through every interface."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from slow_language_model import load_both
from small_models import TEXT

from elmore import Elmo
from elmore.errors import ConfigError
from elmore.text.vocabulary import Vocabulary

WORDS = ["the", ",", "<S>", "</S>", "<UNK>", *dict.fromkeys(w for w in TEXT if w not in "the,")]


@pytest.fixture(scope="module")
def elmo(tmp_path_factory: pytest.TempPathFactory) -> Elmo:
    small = load_both(tmp_path_factory.mktemp("lm"))[0]
    # Without the softmax, whose rows must be those of the vocabulary.
    return Elmo(dataclasses.replace(small.checkpoint, softmax=None, vocabulary=Vocabulary(WORDS)))


def expected(elmo: Elmo, tokens: list[str]) -> np.ndarray:
    share = 1 / np.arange(1, len(WORDS) + 1)
    plain = [k for k, word in enumerate(WORDS) if word not in ("<S>", "</S>", "<UNK>")]
    vectors = elmo.engine.token_vectors([WORDS[k] for k in plain]).astype(np.float64)
    p = share[plain] / share[plain].sum()
    weight = 1e-3 / (1e-3 + p)
    mean = (p * weight) @ vectors / (p * weight).sum()
    often = p * weight**2 / (p * weight**2).sum()
    values, directions = np.linalg.eigh((vectors - mean).T @ np.diag(often) @ (vectors - mean))
    matrix = directions / np.sqrt(np.maximum(values, 1e-4 * values.max()))
    total = np.zeros(len(mean))
    for token, vector in zip(tokens, elmo.engine.token_vectors(tokens), strict=True):
        forms = [form for form in (token, token.lower()) if form in WORDS]
        rank = WORDS.index(forms[0]) if forms else len(WORDS)
        frequency = 1 / (rank + 1) / share.sum()
        white = (vector - mean) @ matrix
        total += 1e-3 / (1e-3 + frequency) * white / np.linalg.norm(white)
    return total / len(tokens)


def test_the_definition(elmo: Elmo) -> None:
    for tokens in (TEXT[:7], ["The", "unseenword", ","], TEXT[4:5]):
        found = elmo.encode([tokens], pool="sif", tokenized=True)[0]
        wanted = expected(elmo, list(tokens))
        assert found.shape == wanted.shape == (elmo.config.lstm.projection_dim,)
        # Directions of the eigenvectors may differ in sign: lengths and angles may not.
        assert np.linalg.norm(found) == pytest.approx(np.linalg.norm(wanted), rel=1e-3)
    several = [list(TEXT[k : k + 5]) for k in range(4)]
    found, wanted = (
        elmo.encode(several, pool="sif", tokenized=True),
        [expected(elmo, s) for s in several],
    )
    np.testing.assert_allclose(found @ found.T, np.array(wanted) @ np.array(wanted).T, atol=1e-4)


def test_a_sentence_depends_on_itself_alone(elmo: Elmo) -> None:
    texts = [" ".join(TEXT[k : k + 1 + k % 9]) for k in range(20)]
    together = elmo.encode(texts, pool="sif")
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(elmo.encode(text, pool="sif"), vector, atol=1e-6)
    np.testing.assert_array_equal(elmo.encode("", pool="sif"), np.zeros(together.shape[1]))
    assert elmo.encode([], pool="sif").shape == (0, together.shape[1])
    long = " ".join(TEXT * 200)  # more tokens than a batch has
    assert np.isfinite(elmo.encode(long, pool="sif")).all()


def test_it_is_kept_with_a_saved_model(elmo: Elmo, tmp_path: Path) -> None:
    wanted = elmo.encode("the one", pool="sif")
    elmo.save(tmp_path / "model")
    again = Elmo.load(tmp_path / "model")
    assert again.checkpoint.whitening is not None
    np.testing.assert_allclose(again.encode("the one", pool="sif"), wanted, atol=1e-6)
    # Other weights have another one.
    changed = again.checkpoint.with_weights(again.checkpoint.weights)
    assert changed.whitening is None


def test_bad_calls_say_what_to_do(elmo: Elmo) -> None:
    with pytest.raises(ConfigError, match="uses the token layer; leave out layers"):
        elmo.encode("a", pool="sif", layers="top")
    without = Elmo(dataclasses.replace(elmo.checkpoint, vocabulary=None))
    with pytest.raises(ConfigError, match="needs the model's vocabulary"):
        without.encode("a", pool="sif")

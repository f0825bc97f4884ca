"""elmore.language_model.scores, against plain float64 arithmetic."""

from __future__ import annotations

import doctest
import math
from pathlib import Path

import numpy as np
import pytest
from slow_language_model import MODELS, WORDS, known, load_both
from small_models import SENTENCES

from elmore import Elmo
from elmore.language_model import scores
from elmore.language_model.scores import pipe_scores, score
from elmore.text.tokenizer import Sentence


@pytest.mark.parametrize("name", MODELS)
def test_scores_against_float64(name: str, tmp_path: Path) -> None:
    elmo, slow = load_both(tmp_path, name)
    for tokens, result in zip(SENTENCES, score(elmo, SENTENCES, tokenized=True), strict=True):
        forward, backward = slow.targets(tokens)
        assert result.tokens == tuple(tokens)
        np.testing.assert_allclose([*result.forward, result.end], forward, rtol=1e-5)
        assert result.forward_total == pytest.approx(forward.sum(), rel=1e-6)
        assert result.unknown.tolist() == [w not in WORDS for w in tokens]
        if backward is None:
            assert result.backward is result.begin is result.backward_total is None
            assert result.total == result.forward_total
            continue
        assert result.backward is not None
        assert result.begin is not None
        np.testing.assert_allclose([result.begin, *result.backward], backward, rtol=1e-5)
        assert result.total == pytest.approx(0.5 * (forward.sum() + backward.sum()), rel=1e-6)
        assert result.perplexity == pytest.approx(
            np.exp(-result.total / (len(tokens) + 1)), rel=1e-12
        )


def test_a_uniform_model(lm: Elmo) -> None:
    uniform = known(lm, [5.0] * len(WORDS))
    assert score(uniform, "").total == pytest.approx(-math.log(len(WORDS)), rel=1e-6)


def test_large_logits_neither_overflow_nor_vanish(lm: Elmo) -> None:
    bias = np.full(len(WORDS), -1e4)
    bias[[WORDS.index("the"), WORDS.index("</S>")]] = 1e4
    result = score(known(lm, bias), "the the")
    np.testing.assert_allclose([*result.forward, result.end], np.log(0.5), rtol=1e-6)
    assert result.begin == pytest.approx(-2e4, rel=1e-4)


def test_text_is_tokenized(lm: Elmo) -> None:
    one = score(lm, "The virus, then.")
    assert one.tokens == ("The", "virus", ",", "then", ".")
    [same] = score(lm, [list(one.tokens)], tokenized=True)
    assert same.total == pytest.approx(one.total, rel=1e-6)
    assert next(pipe_scores(lm, [Sentence(one.tokens)])).total == same.total


def test_an_empty_sentence_has_its_markers_alone(lm: Elmo) -> None:
    result = score(lm, "")
    assert (len(result), result.forward.shape, result.unknown.shape) == (0, (0,), (0,))
    assert result.total == pytest.approx(0.5 * (result.end + result.begin))
    assert score(lm, []) == []


def test_examples(lm: Elmo) -> None:
    assert doctest.testmod(scores, extraglobs={"elmo": lm}) == (0, 2)

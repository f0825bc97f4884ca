"""elmore.language_model.predictions: what all questions to a language model share."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from perplexity_stream import perplexity_stream
from slow_language_model import WORDS, load_both
from small_models import SENTENCES, TEXT

from elmore import Elmo
from elmore.embedding import stream
from elmore.errors import ConfigError, FormatError
from elmore.formats.checkpoint import Softmax
from elmore.language_model.likely_words import next_words, substitutes
from elmore.language_model.perplexity import perplexity
from elmore.language_model.scores import pipe_scores, score
from elmore.text.vocabulary import Vocabulary


def test_batches_order_and_threads_do_not_matter(tmp_path: Path) -> None:
    elmo, _ = load_both(tmp_path, threads=2)
    single, _ = load_both(tmp_path, threads=1)
    sentences = [s for s in SENTENCES if s] * 3
    whole = perplexity(elmo, sentences, tokenized=True)
    for result in (
        perplexity(elmo, sentences, tokenized=True, batch_tokens=1),
        perplexity(elmo, sentences[::-1], tokenized=True, batch_tokens=70),
        perplexity(single, iter(sentences), tokenized=True),
    ):
        assert result.mean == pytest.approx(whole.mean, rel=1e-6)
        assert result.without_unknown == pytest.approx(whole.without_unknown, rel=1e-6)
        assert result.n_tokens == whole.n_tokens
    alone = [score(elmo, [s], tokenized=True)[0] for s in sentences]
    for one, other in zip(alone, pipe_scores(elmo, sentences, tokenized=True), strict=True):
        assert one.tokens == other.tokens
        np.testing.assert_allclose(one.forward, other.forward, atol=1e-5)
        np.testing.assert_allclose(one.backward, other.backward, atol=1e-5)
    assert perplexity(elmo, sentences, tokenized=True) == whole  # repeatable to the bit


def test_blocks_do_not_matter(lm: Elmo, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = perplexity(lm, SENTENCES, tokenized=True)
    likely = substitutes(lm, TEXT[:6], 2)
    monkeypatch.setattr(stream, "_WINDOW_SENTENCES", 2)
    result = perplexity(lm, SENTENCES, tokenized=True)
    assert result.forward == pytest.approx(whole.forward, rel=1e-6)
    assert result.backward == pytest.approx(whole.backward, rel=1e-6)
    assert result.n_empty == 1
    assert [w for w, _ in substitutes(lm, TEXT[:6], 2)] == [w for w, _ in likely]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: perplexity(e, [["a"]]), "tokenized=True"),
        (lambda e: perplexity(e, ["a"], tokenized=True), "sentence 0 is a string"),
        (lambda e: score(e, "a b", tokenized=True), "got a string"),
        (lambda e: score(e, [["a", 1]], tokenized=True), "type int"),
        (lambda e: next_words(e, ["a", None]), "type NoneType"),
        (lambda e: next_words(e, ["a"], 0), "k=0"),
        (lambda e: substitutes(e, ["a"], 1), r"position=1 but the sentence has positions 0\.\.0"),
        (lambda e: substitutes(e, ["a"], -1), "position=-1"),
        (lambda e: substitutes(e, [], 0), "no token"),
        (lambda e: perplexity_stream(e, ["a"], batch_size=0), "batch_size=0"),
    ],
)
def test_misuse(lm: Elmo, call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call(lm)


def test_a_model_without_softmax(tiny_elmo: Elmo) -> None:
    for call in (
        lambda: perplexity(tiny_elmo, ["a"]),
        lambda: score(tiny_elmo, "a"),
        lambda: pipe_scores(tiny_elmo, ["a"]),  # at once, not when the first is asked for
        lambda: substitutes(tiny_elmo, ["a"], 0),
        lambda: perplexity_stream(tiny_elmo, ["a"]),
    ):
        with pytest.raises(ConfigError, match="this model has no softmax") as caught:
            call()
        assert "`elmore fine-tune`" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_damaged_models(lm: Elmo) -> None:
    checkpoint = lm.checkpoint
    weight, bias = checkpoint.softmax.weight.copy(), checkpoint.softmax.bias.copy()

    def broken(**parts: Any) -> Elmo:
        return Elmo(dataclasses.replace(checkpoint, **parts))

    with pytest.raises(FormatError, match="softmax of shape"):
        perplexity(broken(softmax=Softmax(weight[:, 1:], bias)), ["a"])
    other = Vocabulary(["x" if word == "<S>" else word for word in WORDS])
    with pytest.raises(FormatError, match="has no <S>"):
        perplexity(broken(vocabulary=other), ["a"])
    other = Vocabulary(["x" if word == "<UNK>" else word for word in WORDS])
    assert perplexity(broken(vocabulary=other), ["the ."]).oov_rate == 0
    with pytest.raises(FormatError, match="no <UNK>"):
        perplexity(broken(vocabulary=other), ["zzz"])
    bias[7] = np.nan
    with pytest.raises(FormatError, match="not finite"):
        perplexity(broken(softmax=Softmax(weight, bias)), ["a"])

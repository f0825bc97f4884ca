"""perplexity_stream, against the figures of bilm-tf."""

from __future__ import annotations

import json

import perplexity_stream as module
import pytest
from perplexity_stream import perplexity_stream
from slow_language_model import numbers
from small_models import GOLDEN, TEXT
from tf_bundle import load_bundle, toy_corpus

from elmore import Elmo
from elmore.errors import InputError
from elmore.language_model.likely_words import next_words
from elmore.language_model.perplexity import perplexity


@pytest.mark.parametrize(("batch_size", "n_batches"), [(1, 139), (2, 55)])
def test_test_perplexity_of_bilm_tf(
    batch_size: int, n_batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = GOLDEN / "bilm-tf/checkpoint"
    golden = json.loads((path / "test_perplexity.json").read_text())
    elmo = Elmo(load_bundle(path / "model.ckpt-6"))
    result = perplexity_stream(elmo, toy_corpus(), batch_size=batch_size, tokenized=True)
    assert result.mean == pytest.approx(golden[f"perplexity_batch_size_{batch_size}"], rel=1e-6)
    assert result.n_tokens == n_batches * batch_size
    assert result.n_sentences == 5
    # In windows of a few steps the state is carried all the same.
    monkeypatch.setattr(module, "BATCH_TOKENS", 7)
    again = perplexity_stream(elmo, toy_corpus(), batch_size=batch_size, tokenized=True)
    assert again.mean == pytest.approx(result.mean, rel=1e-6)
    assert again.n_words == result.n_words


def test_test_perplexity_of_bilm_tf_in_one_direction() -> None:
    elmo = Elmo(load_bundle(GOLDEN / "bilm-tf/edge/one_direction/model.ckpt-300"))
    result = perplexity_stream(elmo, toy_corpus(), batch_size=1, tokenized=True)
    assert result.mean == pytest.approx(16.38926, rel=1e-6)
    assert result.backward is None
    # A trained model knows its own text better than the words that it never saw there.
    likely = [word for word, _ in next_words(elmo, ["these", "models", "make", "use"], 3)]
    assert "of" in likely


def test_stream_of_one_sentence_equals_the_sentence_alone(lm: Elmo) -> None:
    tokens = [TEXT[:9]]
    alone = perplexity(lm, tokens, tokenized=True)
    stream = perplexity_stream(lm, tokens, batch_size=1, tokenized=True)
    assert numbers(stream) == pytest.approx(numbers(alone), rel=1e-6)


def test_a_stream_drops_what_does_not_fill_all_rows(lm: Elmo) -> None:
    # Rows of 3 and 2 steps; the second finds no sentence at step 3, which is lost for both.
    result = perplexity_stream(lm, [["a", "b"], ["c"]], batch_size=2, tokenized=True)
    assert (result.n_tokens, result.n_sentences, result.n_words) == (4, 2, 3)
    with pytest.raises(InputError, match="too few sentences to fill 3 rows"):
        perplexity_stream(lm, [["a", "b"], ["c"]], batch_size=3, tokenized=True)

"""elmore.language_model.perplexity, against plain float64 arithmetic."""

from __future__ import annotations

import doctest
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slow_language_model import MODELS, WORDS, known, load_both, numbers
from small_models import SENTENCES

from elmore import Elmo
from elmore.compute.softmax import LogSoftmax
from elmore.errors import ConfigError, InputError
from elmore.language_model import perplexity as module
from elmore.language_model.perplexity import Perplexity, perplexity


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("name", MODELS)
def test_perplexity_against_float64(name: str, seed: int, tmp_path: Path) -> None:
    elmo, slow = load_both(tmp_path, name, seed)
    result = perplexity(elmo, SENTENCES, tokenized=True)
    full = [tokens for tokens in SENTENCES if tokens]
    pairs = [slow.targets(tokens) for tokens in full]
    forward = np.concatenate([pair[0] for pair in pairs])
    assert result.forward == pytest.approx(np.exp(-forward.mean()), rel=1e-6)
    known = [np.array([*(w in WORDS for w in tokens), True]) for tokens in full]
    losses = [forward[np.concatenate(known)]]
    if slow.body.n_directions == 2:
        backward = np.concatenate([pair[1] for pair in pairs])
        assert result.backward == pytest.approx(np.exp(-backward.mean()), rel=1e-6)
        both = 0.5 * (forward.mean() + backward.mean())
        assert result.mean == pytest.approx(np.exp(-both), rel=1e-6)
        losses.append(backward[np.concatenate([np.roll(mask, 1) for mask in known])])
    else:
        assert result.backward is None
        assert result.mean == result.forward
    expected = np.exp(-np.concatenate(losses).mean())
    assert result.without_unknown == pytest.approx(expected, rel=1e-6)
    n_unknown = sum(w not in WORDS for tokens in full for w in tokens)
    n_words = sum(map(len, full))
    assert 0 < n_unknown < n_words
    assert (result.n_words, result.n_unknown) == (n_words, n_unknown)
    assert result.oov_rate == n_unknown / n_words
    assert (result.n_tokens, result.n_sentences) == (n_words + len(full), len(full))
    assert result.n_empty == 1


def test_parts_add_up(lm: Elmo) -> None:
    first, second = SENTENCES[:3], SENTENCES[3:]
    whole = perplexity(lm, SENTENCES, tokenized=True)
    total = perplexity(lm, first, tokenized=True) + perplexity(lm, second, tokenized=True)
    assert numbers(total) == pytest.approx(numbers(whole), rel=1e-6)
    with pytest.raises(ConfigError, match="no backward direction"):
        whole + Perplexity()


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(lm: Elmo) -> None:
    uniform = known(lm, [5.0] * len(WORDS))
    result = perplexity(uniform, ["the , .", "zzz"])
    for value in (result.forward, result.backward, result.mean, result.without_unknown):
        assert value == pytest.approx(len(WORDS), rel=1e-6)
    assert (result.n_tokens, result.n_sentences, result.oov_rate) == (6, 2, 0.25)


def test_what_no_float_holds_is_null(lm: Elmo) -> None:
    bias = np.full(len(WORDS), -1e4)
    bias[[WORDS.index("the"), WORDS.index("</S>")]] = 1e4
    report = perplexity(known(lm, bias), ["."] * 3).to_dict()  # exp(10,000)
    assert report["backward"] is None
    json.dumps(report, allow_nan=False)


def test_a_lone_text_is_one_sentence(lm: Elmo) -> None:
    assert perplexity(lm, "The virus, then.").n_tokens == 6


@pytest.mark.parametrize("threads", [1, 2])
def test_the_softmax_keeps_to_the_threads_of_the_model(
    lm: Elmo, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most, real, lock = 0, 0, LogSoftmax.of, threading.Lock()

    def watched(self: LogSoftmax, *args: Any) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        try:
            return real(self, *args)
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(LogSoftmax, "of", watched)
    perplexity(Elmo(lm.checkpoint, threads=threads), SENTENCES * 50, tokenized=True)
    assert 1 <= most <= threads


def test_nothing_to_measure(lm: Elmo) -> None:
    for nothing in ([], [""], iter(["", " "])):
        with pytest.raises(InputError, match="no sentence"):
            perplexity(lm, nothing)


def test_progress_counts_sentences(lm: Elmo) -> None:
    class Counter:
        n = 0

        def update(self, n: int) -> None:
            self.n += n

        def close(self) -> None: ...

    counter = Counter()
    perplexity(lm, SENTENCES, tokenized=True, progress=counter, batch_tokens=30)
    assert counter.n == len(SENTENCES) - 1


def test_a_saved_model_gives_the_same(lm: Elmo, tmp_path: Path) -> None:
    """Its softmax is mapped from the file, hence read-only."""
    lm.save(tmp_path / "model")
    before = perplexity(lm, SENTENCES, tokenized=True)
    after = perplexity(Elmo.load(tmp_path / "model"), SENTENCES, tokenized=True)
    assert numbers(after) == pytest.approx(numbers(before), rel=1e-6)


def test_it_says_what_it_measured(lm: Elmo) -> None:
    result = perplexity(lm, ["the zzz ."])
    assert repr(result).startswith(f"Perplexity(forward={result.forward:.6g}, backward=")
    assert "backward=None" in repr(Perplexity(n_tokens=1, n_known=1))


def test_examples(lm: Elmo) -> None:
    assert doctest.testmod(module, extraglobs={"elmo": lm}) == (0, 2)


def test_a_perplexity_of_many_unknown_words_is_said_to_mislead() -> None:
    assert module.misleading(0.1) is None
    assert "88% of the words are not in the vocabulary" in str(module.misleading(0.88))
    assert module.headline(5.6, 900.25, 0.88) == (
        "5.6 (without <UNK> 900.2; 88.0% of the words are <UNK>)"
    )

"""elmore.language_model.likely_words, against plain float64 arithmetic."""

from __future__ import annotations

import doctest
import math
from pathlib import Path

import numpy as np
import pytest
from slow_language_model import WORDS, Slow, known, load_both
from small_models import TEXT

from elmore import Elmo
from elmore.errors import ConfigError
from elmore.language_model import likely_words
from elmore.language_model.likely_words import (
    next_words,
    previous_words,
    substitutes,
    substitutes_at,
)
from elmore.language_model.sense_vectors import SubstituteSpace
from elmore.text.tokenizer import Sentence


def test_likely_words_against_float64(both_models: tuple[Elmo, Slow]) -> None:
    elmo, slow = both_models
    tokens, plain = TEXT[:6], [k for k, w in enumerate(WORDS) if w[0] != "<" or w == "<"]
    assert len(plain) == len(WORDS) - 3

    def check(found: list[tuple[str, float]], logs: np.ndarray, k: int) -> None:
        best = sorted(plain, key=lambda word: -logs[word])[:k]
        assert [word for word, _ in found] == [WORDS[word] for word in best]
        np.testing.assert_allclose([value for _, value in found], logs[best], atol=1e-5)

    forward, backward = slow.logs(tokens)
    check(next_words(elmo, tokens), forward[6], 10)
    check(previous_words(elmo, tokens, 4), backward[1], 4)
    check(next_words(elmo, []), slow.logs([])[0][0], 10)
    check(previous_words(elmo, []), slow.logs([])[1][1], 10)
    for position in range(len(tokens)):
        prior = -np.log(np.arange(1, len(WORDS) + 1))  # Zipf's law
        logs = forward[position] + backward[position + 2] - prior
        logs -= np.log(np.exp(logs[plain]).sum())
        check(substitutes(elmo, tokens, position, 5), logs, 5)
    everything = substitutes(elmo, tokens, 2, k=10**6)
    assert len(everything) == len(plain)
    assert sum(math.exp(value) for _, value in everything) == pytest.approx(1)
    assert sum(math.exp(value) for _, value in next_words(elmo, tokens, 10**6)) < 1


def test_many_places_at_once_are_those_one_by_one(
    lm: Elmo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likely_words, "_POSITIONS", 3)
    places = [(Sentence(tuple(TEXT[k : k + 2 + k % 5])), k % 2) for k in range(11)]
    together = substitutes_at(lm, places, 4, batch_tokens=20)
    for (sentence, position), found in zip(places, together, strict=True):
        alone = substitutes(lm, sentence.tokens, position, 4)
        assert [word for word, _ in found] == [word for word, _ in alone]
        np.testing.assert_allclose([v for _, v in found], [v for _, v in alone], atol=1e-5)
    assert substitutes_at(lm, []) == []


def test_substitutes_do_not_see_the_word_itself(lm: Elmo) -> None:
    tokens = list(TEXT[:7])
    before = substitutes(lm, tokens, 3)
    tokens[3] = "something"
    for (word, value), (same, other) in zip(before, substitutes(lm, tokens, 3), strict=True):
        assert word == same
        assert value == pytest.approx(other, abs=1e-5)


def test_one_direction_judges_by_what_stands_before(tmp_path: Path) -> None:
    elmo, _ = load_both(tmp_path, "one direction")
    assert [w for w, _ in substitutes(elmo, TEXT[:5], 2)] == [
        w for w, _ in next_words(elmo, TEXT[:2])
    ]
    with pytest.raises(ConfigError, match="no backward direction"):
        previous_words(elmo, TEXT[:2])


def test_ties_come_in_the_order_of_the_vocabulary(lm: Elmo) -> None:
    words = [word for word, _ in next_words(known(lm, [0.0] * len(WORDS)), ["a"], k=3)]
    assert words == ["the", ",", "."]


def test_text_is_tokenized(lm: Elmo) -> None:
    assert next_words(lm, "The virus,", 3) == next_words(lm, ["The", "virus", ","], 3)


def test_examples(lm: Elmo) -> None:
    assert doctest.testmod(likely_words, extraglobs={"elmo": lm}) == (0, 3)


def test_similar_words_and_exploring_prepare_the_model_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elmo, _ = load_both(tmp_path)
    made: list[int] = []
    prepare = SubstituteSpace.__init__
    monkeypatch.setattr(
        SubstituteSpace, "__init__", lambda *a, **how: (made.append(1), prepare(*a, **how))[1]
    )
    word = next(token for token in TEXT[:6] if token in WORDS)
    for _ in range(2):
        elmo.most_similar(word, TEXT[:6])
        elmo.most_similar(word)
        elmo.explore([f"{word} {word} ."])
        elmo.senses(word)
    assert len(made) == 1


def test_an_exploration_replaces_no_file_unasked(lm: Elmo, tmp_path: Path) -> None:
    found = lm.explore(["a a ."])
    (tmp_path / "uses.html").write_text("mine")
    with pytest.raises(ConfigError, match="exists"):
        found.save(tmp_path / "uses.html")
    assert (tmp_path / "uses.html").read_text() == "mine"
    found.save(tmp_path / "uses.html", overwrite=True)
    assert "<html" in (tmp_path / "uses.html").read_text("utf-8")

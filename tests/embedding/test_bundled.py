"""The model inside the package: there, small, trained, and used when none is named."""

from __future__ import annotations

import dataclasses
import pickle
import socket
from pathlib import Path

import numpy as np
import pytest

from elmore import Elmo, cosine, perplexity, substitutes
from elmore.compute.native import native
from elmore.integrations.columns import ColumnJob
from elmore.integrations.loaded import load_once
from elmore.language_model.predictions import LanguageModel
from elmore.published.catalog import BUNDLED, INCLUDED, bundled_model, catalog
from elmore.senses import Index, build_index
from elmore.text.tokenizer import Sentence

# Two senses of a word, two sentences each, the word in the same place of its sentence.
SENSES = {
    "bank": (
        ["She sat on the bank of the river .", "Trees grew on the bank of the stream ."],
        ["The bank raised its interest rates .", "The bank lent them the money ."],
    ),
    "play": (
        ["Hamlet is a play by Shakespeare .", "We saw a new play at the theatre ."],
        ["They play football every week .", "He wants to play for another team ."],
    ),
}


@pytest.fixture(scope="module")
def english() -> Elmo:
    return Elmo.load(threads=1)


@pytest.mark.parametrize(("name", "megabytes"), [("english", 40), ("korean", 11)])
def test_it_fits_into_the_package(name, megabytes):
    assert sum(file.stat().st_size for file in bundled_model(name).iterdir()) <= megabytes * 1e6


def test_every_included_model_loads_by_its_name():
    for name in INCLUDED:
        elmo = Elmo.load(name, threads=1)
        assert (elmo.dim, elmo.checkpoint.softmax is not None) == (catalog()[name].dim, True)


def test_korean_is_computed_as_it_is_stored():
    korean = Elmo.load("korean", threads=1)
    assert korean.checkpoint.precision == "int8"
    assert korean.precision == ("int8" if native().vectors else "float32")
    text = "겨울에는 눈이 많이 내린다 ."
    exact = Elmo.load("korean", precision="float32", threads=1).layers([text])[0]
    found = korean.layers([text])[0]
    for layer, expected in zip(found.values, exact.values, strict=True):
        assert cosine(layer, expected).diagonal().min() > 0.999


def test_it_loads_by_default_by_name_and_offline(english, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("the bundled model needs no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    named = Elmo.load(BUNDLED, threads=1)
    text = "A plant grew ."
    assert np.array_equal(named.embed(text), english.embed(text))
    assert named.checkpoint.softmax is not None
    training = english.checkpoint.notes["training"]
    assert training["tokens_seen"] > 1e6
    assert training["longest"] >= 1000


@pytest.mark.parametrize("word", SENSES)
def test_senses_come_apart(english, word):
    first, second = (
        np.stack(
            [one.values[:, one.tokens.index(word)] for one in english.layers(texts)]
        )  # (uses, layers, dim)
        for texts in SENSES[word]
    )
    across = cosine(first[:, 2], second[:, 2])
    assert cosine(first[0, 2], first[1, 2]) > across.max()
    assert cosine(second[0, 2], second[1, 2]) > across.max()
    # Without context there is nothing to tell them apart by.
    assert cosine(first[0, 0], second[0, 0]) == pytest.approx(1, abs=1e-5)


def test_it_predicts_english_better_than_noise(english):
    text = ["The children went to school in the morning .", "It was one of the first of its kind ."]
    shuffled = [" ".join(sorted(line.split(), key=lambda w: w[::-1])) for line in text]
    assert perplexity(english, text).mean < 200 < perplexity(english, shuffled).mean


def test_it_stays_sane_on_long_input(english):
    """Running text as one sequence: no stretch is much worse than the same words in short pieces.

    A model that was trained on sentences alone may diverge after some hundred tokens, and every
    vector beyond is meaningless.
    """
    text = (Path(__file__).parents[2] / "LICENSE").read_text(encoding="utf-8")
    tokens = english.tokenize(text).tokens
    tokens = tokens[: len(tokens) // 100 * 100]
    assert len(tokens) >= 1500
    model = LanguageModel(english)
    long, _ = model.predict([Sentence(tokens)])
    short, _ = model.predict([Sentence(tokens[k : k + 50]) for k in range(0, len(tokens), 50)])
    for direction in (0, 1):
        # One sequence predicts n words and a marker, the pieces 50 words and a marker each.
        whole = long[direction][:-1] if direction == 0 else long[direction][1:]
        pieces = short[direction].reshape(-1, 51)
        pieces = (pieces[:, :-1] if direction == 0 else pieces[:, 1:]).reshape(-1)
        worse = (pieces - whole).reshape(-1, 100).mean(axis=1)  # nats per token, by 100 tokens
        assert worse.max() < np.log(2)


def test_korean_knows_what_fits_into_a_sentence():
    korean = Elmo.load("korean", threads=1)
    assert korean.tokenize("‘눈’이 내린다.").tokens == ("'", "눈", "'", "이", "내린다", ".")
    text = ["그는 서울에서 태어났다 .", "이 영화는 2005년에 개봉하였다 ."]
    shuffled = [" ".join(sorted(line.split(), key=lambda w: w[::-1])) for line in text]
    assert 3 * perplexity(korean, text).mean < perplexity(korean, shuffled).mean
    snow = [word for word, _ in substitutes(korean, "겨울에는 눈이 많이 내린다 .".split(), 1, k=20)]
    assert {"비가", "눈이", "안개가"} & set(snow)


def test_a_sequence_that_is_much_too_long_is_warned_of_once(tiny_checkpoint):
    notes = {"training": {"longest": 5}}
    elmo = Elmo(dataclasses.replace(tiny_checkpoint, notes=notes))
    elmo.embed([["a"] * 20], tokenized=True)
    with pytest.warns(UserWarning, match="21 tokens, but the model was trained on at most 5"):
        elmo.embed([["a"] * 21], tokenized=True)
    elmo.embed([["a"] * 21], tokenized=True)


def test_no_folder_of_its_name_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "english").mkdir()
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("She sat on the bank .\n")
    elmo = Elmo.load(threads=1)
    assert pickle.loads(pickle.dumps(elmo)).dim == elmo.dim
    assert load_once(threads=1).dim == elmo.dim
    assert ColumnJob(pool="mean").added("text") == ["vector"]
    index = build_index(["text.txt"], "uses", words="bank", threads=1)
    assert index.manifest["model_name"] == "english"
    assert len(Index.open("uses", threads=1).find("The [bank] of a river .").hits) == 1

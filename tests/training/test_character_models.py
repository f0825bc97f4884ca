"""Models that read Unicode characters instead of bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_training import make_sentences, small_recipe, write_text

from elmore.corpus.prepare import prepare
from elmore.corpus.prepared import Prepared
from elmore.text.batching import TokenIndexer
from elmore.text.characters import DictionaryAlphabet
from elmore.training.bilm.pretrain import pretrain
from elmore.training.bilm.streams import make_batches
from elmore.training.run import Run

# 23 Thai letters, 69 bytes each; they differ in the last letter only.
LONG = "การเปลี่ยนแปลงภูมิอากาศ"[:22]
WORDS = [LONG + letter for letter in "กขคงจฉชซญดต"]
CHARACTERS = {"model.alphabet": '"characters"', "model.max_chars": 26}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("thai")
    sentences = [*make_sentences(60, words=WORDS), ["ฮ"]]  # a letter that occurs once
    text = write_text(folder / "text.txt", sentences)
    return prepare([text], folder / "data", tokenized=True, workers=1, heldout=0.0, seed=1)


def train(data: Prepared, out: Path, settings: dict[str, Any] | None = None, **rest: Any) -> Run:
    both = {**CHARACTERS, **(settings or {})}
    return pretrain(data, out, recipe=small_recipe(both), threads=1, seed=3, **rest)


@pytest.fixture(scope="module")
def trained(data: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(data, tmp_path_factory.mktemp("runs") / "run")


def test_the_alphabet_is_that_of_the_text(data: Prepared) -> None:
    alphabet = data.characters(26)
    assert alphabet.symbols[:6] == DictionaryAlphabet.specials
    letters = alphabet.symbols[6:]
    assert set(letters) == set("".join(WORDS))  # and ฮ, which occurs once, is unknown
    unknown = alphabet.symbols.index("<oov>") + 1
    assert alphabet.encode(["ฮ"])[0, 1] == unknown
    counts = dict.fromkeys(letters, 0)
    for line in (data.folder / "counts.tsv").read_text(encoding="utf-8").splitlines():
        word, count = line.split("\t")
        for letter in word:
            if letter in counts:
                counts[letter] += int(count)
    assert list(counts.values()) == sorted(counts.values(), reverse=True)


def test_it_reads_the_end_of_long_words(trained: Run, data: Prepared, tmp_path: Path) -> None:
    elmo = trained.elmo(threads=1)
    assert isinstance(elmo.checkpoint.alphabet, DictionaryAlphabet)
    assert elmo.config.tokens.n_characters == len(elmo.checkpoint.alphabet.symbols)
    assert len(np.unique(elmo.engine.word_vectors(WORDS), axis=0)) > 1
    # A model of as many bytes cannot tell the words apart.
    recipe = small_recipe({"model.max_chars": 26})
    run = pretrain(data, tmp_path / "bytes", recipe=recipe, threads=1)
    vectors = run.elmo(threads=1).engine.word_vectors(WORDS)
    assert len(np.unique(vectors, axis=0)) == 1


def test_a_stream_marks_sentences_as_the_model_reads_them(data: Prepared, tmp_path: Path) -> None:
    """`<S>` spelled out, letter by letter, would be another word than the one of inference."""
    alphabet = data.characters(26)
    recipe = small_recipe({**CHARACTERS, "data.regime": "stream"})
    indexer = TokenIndexer(alphabet)
    batches = make_batches(data, recipe, indexer, data.vocabulary)
    words = batches.next().words
    marker = alphabet.encode([alphabet.markers[0]])[0]
    assert (words == marker).all(axis=1).any()
    assert not (words == alphabet.encode(["<S>"])[0]).all(axis=1).any()

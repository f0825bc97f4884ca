"""Word vectors that others trained, for the words of a vocabulary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from small_training import small_data, small_recipe

from elmore.errors import ConfigError, ElmoreError, InputError
from elmore.text.vocabulary import Vocabulary
from elmore.text.word_vectors import read_word_vectors
from elmore.training.bilm.pretrain import pretrain

VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", "cat", "dog"])


def read(path: Path) -> None:
    read_word_vectors(path, only=VOCABULARY, dim=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 3\ncat 1 2 3\n", "v.txt: 3 numbers for each word, expected 2"),
        ("cat 1 2\ndog 1\n", "v.txt:2: not 2 numbers"),
        ("cat 1 two\n", "v.txt:1: a value is not a finite number"),
        ("cat 1 nan\n", "v.txt:1"),
        ("emu 1 2\n", "no word of the vocabulary"),
    ],
)
def test_texts_that_are_wrong(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "v.txt")


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((3, 2)), r"1 words but a matrix of shape \(3, 2\)"),
        (np.array([{}], object), r"v.npy' is not a matrix"),
        (np.array([["x", "y"]]), "v.npy: a value is not a finite number"),
        (np.array([[1, np.inf]]), "v.npy: a value is not a finite number"),
    ],
)
def test_matrices_that_are_wrong(matrix: np.ndarray, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", matrix, allow_pickle=True)
    (tmp_path / "v.words").write_text("cat\n")
    with pytest.raises(ElmoreError, match=message):
        read(tmp_path / "v.npy")


def test_a_training_starts_from_them(tmp_path: Path) -> None:
    data = small_data(tmp_path)
    path = tmp_path / "vectors.txt"
    path.write_text("wb" + " 9" * 6 + "\nzz" + " 1" * 6 + "\n")
    # one step with a rate that changes next to nothing
    settings = {"model.tokens": "words", "model.vectors": str(path), "optimizer.lr": "1e-12"}
    recipe = small_recipe(settings, schedule__tokens=1)
    run = pretrain(data, tmp_path / "run", recipe=recipe, threads=1)
    weights = dict(run.elmo(best=False).checkpoint.checked_weights())
    table = torch.from_numpy(np.array(weights["tokens.words"]))
    known = data.vocabulary.find("wb")
    assert table[known].tolist() == [9.0] * 6
    assert (table[:known] != 9).all()
    with pytest.raises(ConfigError, match=r"model\.tokens='words'"):
        pretrain(
            data,
            tmp_path / "other",
            recipe=small_recipe({"model.vectors": str(path)}),
            threads=1,
        )

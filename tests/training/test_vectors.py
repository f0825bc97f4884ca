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

VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", "cat", "dog", "7"])
ROWS = {"dog": [1.0, -2.5], "emu": [3, 4], "cat": [5e-3, 6]}


def read_vectors(path: Path, vocabulary: Vocabulary, dim: int) -> tuple[np.ndarray, np.ndarray]:
    found = read_word_vectors(path, only=vocabulary, dim=dim)
    return vocabulary.encode(found.words), found.vectors


def text_file(folder: Path, header: str = "", rows: dict[str, list[float]] = ROWS) -> Path:
    path = folder / "vectors.txt"
    lines = [f"{word} {' '.join(map(str, values))}\n" for word, values in rows.items()]
    path.write_text(header + "".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("header", ["", "3 2\n"])
def test_word2vec_text(header: str, tmp_path: Path) -> None:
    ids, vectors = read_vectors(text_file(tmp_path, header), VOCABULARY, 2)
    assert ids.tolist() == [4, 3]
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, [[1, -2.5], [5e-3, 6]])


def test_a_number_is_a_word_too(tmp_path: Path) -> None:
    """Two columns: only the first line may be counts, and only with one value."""
    ids, vectors = read_vectors(text_file(tmp_path, "", {"7": [1, 2]}), VOCABULARY, 2)
    assert (ids.tolist(), vectors.tolist()) == ([5], [[1, 2]])


def test_the_wrong_size_names_file_and_line(tmp_path: Path) -> None:
    path = text_file(tmp_path, "3 2\n")
    with pytest.raises(InputError, match=r"vectors.txt: 2 numbers for each word, expected 3"):
        read_vectors(path, VOCABULARY, 3)
    path.write_text("cat 1 2\ndog 1\n")
    with pytest.raises(InputError, match=r"vectors.txt:2: 1 numbers, expected 2"):
        read_vectors(path, VOCABULARY, 2)
    np.save(tmp_path / "v.npy", np.zeros((3, 2)))
    (tmp_path / "v.words").write_text("cat\ndog\n")
    with pytest.raises(InputError, match=r"2 words but a matrix of shape \(3, 2\)"):
        read_vectors(tmp_path / "v.npy", VOCABULARY, 2)


def test_what_is_not_a_vector(tmp_path: Path) -> None:
    path = text_file(tmp_path, "", {"cat": [1, 2]})
    path.write_text("cat 1 two\n")
    with pytest.raises(InputError, match=r"vectors.txt:1: a value is not a number"):
        read_vectors(path, VOCABULARY, 2)
    path.write_text("emu 1 2\n")
    with pytest.raises(InputError, match="no word of the vocabulary"):
        read_vectors(path, VOCABULARY, 2)
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    (tmp_path / "o.words").write_text("cat\n")
    with pytest.raises(ElmoreError, match=r"o.npy' is not a matrix"):
        read_vectors(tmp_path / "o.npy", VOCABULARY, 2)
    np.save(tmp_path / "o.npy", np.array([["x", "y"]]))
    with pytest.raises(InputError, match=r"o.npy: a matrix of <U1; give one of numbers"):
        read_vectors(tmp_path / "o.npy", VOCABULARY, 2)
    with pytest.raises(ElmoreError, match="does not exist"):
        read_vectors(tmp_path / "none.txt", VOCABULARY, 2)


@pytest.mark.parametrize("bad", ["nan", "inf"])
def test_values_that_are_not_finite(bad: str, tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text(f"cat 1 {bad}\n")
    with pytest.raises(InputError, match=r"v.txt:1"):
        read_vectors(path, VOCABULARY, 2)
    np.save(tmp_path / "v.npy", np.array([[1, float(bad)]]))
    (tmp_path / "v.words").write_text("cat\n")
    with pytest.raises(InputError, match=r"v.npy: a value is not finite"):
        read_vectors(tmp_path / "v.npy", VOCABULARY, 2)


def test_a_training_starts_from_them(tmp_path: Path) -> None:
    data = small_data(tmp_path)
    path = text_file(tmp_path, "", {"wb": [9.0] * 6, "zz": [1.0] * 6})
    # one step with a rate that changes next to nothing
    settings = {"model.tokens": "words", "model.vectors": str(path), "optimizer.lr": "1e-12"}
    recipe = small_recipe(settings, schedule__tokens=1)
    run = pretrain(data, tmp_path / "run", recipe=recipe, threads=1)
    weights = dict(run.elmo(best=False).checkpoint.checked_weights())
    table = torch.from_numpy(np.array(weights["tokens.words"]))
    known = data.vocabulary.find("wb")
    assert known is not None
    assert table[known].tolist() == [9.0] * 6
    assert (table[:known] != 9).all()
    with pytest.raises(ConfigError, match=r"model\.tokens='words'"):
        pretrain(
            data,
            tmp_path / "other",
            recipe=small_recipe({"model.vectors": str(path)}),
            threads=1,
        )

"""word2vec's files: what we write, gensim and we read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors

from elmore.errors import ConfigError, ElmoreError, InputError
from elmore.text.word_vectors import read_word_vectors, write_word_vectors

WORDS = ["the", "naïve", "速い狐", "a\u00a0b", "<S>", "1%2", "\u3000", "7"]
VECTORS = np.random.default_rng(0).standard_normal((len(WORDS), 5)).astype(np.float32)
VECTORS[0] = [0, -0.0, 1e-30, 3.4e38, 1 / 3]


def write(path: Path, **options: object) -> None:
    rows = zip(WORDS, VECTORS, strict=True)
    write_word_vectors(path, rows, **{"n_words": len(WORDS), "dim": 5, **options})


@pytest.mark.parametrize("name", ["words.txt", "words.vec", "words.bin", "words.BIN"])
def test_gensim_and_our_reader_read_the_same_bits(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write(path)
    binary = path.suffix.lower() == ".bin"
    keyed = KeyedVectors.load_word2vec_format(str(path), binary=binary)
    assert keyed.index_to_key == WORDS
    assert np.array_equal(keyed.vectors, VECTORS)
    ours = read_word_vectors(path)
    assert ours.words == WORDS
    assert np.array_equal(ours.vectors, VECTORS)


def test_gensims_binary_files_are_read(tmp_path: Path) -> None:
    keyed = KeyedVectors(5)
    keyed.add_vectors(WORDS, VECTORS)
    keyed.save_word2vec_format(str(tmp_path / "words.bin"), binary=True)  # no line ends
    ours = read_word_vectors(tmp_path / "words.bin")
    assert ours.words == WORDS
    assert np.array_equal(ours.vectors, VECTORS)


@pytest.mark.parametrize("header", ["", "4 2\n"])
def test_words_of_glove_may_have_spaces(tmp_path: Path, header: str) -> None:
    path = tmp_path / "glove.txt"
    path.write_text(f"{header}the 1 2\n. . . 3 4\nat name@domain.com 5 6 \nto infinity 7 8\n")
    found = read_word_vectors(path)
    assert found.words == ["the", ". . .", "at name@domain.com", "to infinity"]
    assert found.vectors.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 1 2\na 1 2 3\n", ":2: not 2 numbers"),
        ("the 1 2\na b 1 2 3 4\n", ":2: not 2 numbers"),
        ("the 1 2\na b 1\n", ":2: a value is not a finite number"),
        ("the 1 2\na 1  2\n", ":2: "),
        ("1 3\na 1 2\n", ":2: not 3 numbers"),
        ("1 0\na\n", ":1: there is no vector"),
        ("a b 1 2\n", ":1: a value is not a finite number"),
        ("\u00b2 \u00b2\n", ":1: a value is not a finite number"),
    ],
)
def test_lines_with_another_number_of_values(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "v.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=f"v.txt{message}"):
        read_word_vectors(path)


def test_the_first_vector_of_a_word_counts(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text("a 1 2\na 3 4\n")
    assert read_word_vectors(path).take(["a"]).tolist() == [[1, 2]]


def test_a_matrix_of_texts_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.array([["x", "y"]]))
    (tmp_path / "v.words").write_text("a\n")
    with pytest.raises(InputError, match=r"v.npy: a value is not a finite number"):
        read_word_vectors(tmp_path / "v.npy")


@pytest.mark.parametrize("name", ["words.txt", "words.bin"])
def test_a_file_is_whole_or_not_there(tmp_path: Path, name: str) -> None:
    def broken() -> Iterator[tuple[str, np.ndarray]]:
        yield "a", VECTORS[0]
        raise KeyError("oops")

    path = tmp_path / name
    with pytest.raises(KeyError):
        write_word_vectors(path, broken(), n_words=2, dim=5)
    with pytest.raises(ConfigError, match="8 word vectors where 9 were announced"):
        write(path, n_words=9)
    with pytest.raises(ConfigError, match=r"shape \(5,\); give 4 numbers each"):
        write(path, dim=4)
    with pytest.raises(InputError, match="'New York' cannot be stored in a word2vec file"):
        write_word_vectors(path, [("New York", VECTORS[0])], n_words=1, dim=5)
    assert list(tmp_path.iterdir()) == []
    write(path)
    with pytest.raises(ConfigError, match="--force"):
        write(path)
    write(path, overwrite=True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no line of two counts"),
        (b"word vectors\n", "no line of two counts"),
        (b"0 5\n", "do not fit"),
        (b"2 999999999\n" + bytes(20), "do not fit"),
        (b"99999999999 1\n" + bytes(20), "do not fit"),
        (b"2 1\na " + bytes(4) + b"\nbcdefghijklmnop", "it ends in word 2"),
        (b"1 1\na \x00\x00\xc0\x7f", "not a finite number"),
    ],
)
def test_damaged_binary_files(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "words.bin"
    path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_word_vectors(path)


def test_lookups_and_a_matrix_with_its_words(tmp_path: Path) -> None:
    text = tmp_path / "v.txt"
    text.write_text("2 3\nthe 1 2 3\nRome 4 5 6\n")
    vectors = read_word_vectors(text)
    assert (vectors.words, vectors.dim) == (["the", "Rome"], 3)
    np.testing.assert_array_equal(
        vectors.take(["The", "rome", "Rome"]), [[1, 2, 3], [0, 0, 0], [4, 5, 6]]
    )
    assert vectors.known(["The", "rome"]) == 0.5
    np.save(tmp_path / "w.40k.float16.npy", vectors.vectors.astype(np.float16))
    matrix = tmp_path / "w.40k.float16.npy"
    with pytest.raises(InputError, match="no words beside it"):
        read_word_vectors(matrix)
    (tmp_path / "w.40k.words.txt").write_text("the\nRome\n")
    np.testing.assert_array_equal(read_word_vectors(matrix).vectors, vectors.vectors)
    (tmp_path / "w.40k.words.txt").write_text("the\n")
    with pytest.raises(InputError, match="1 words but a matrix of shape"):
        read_word_vectors(matrix)
    matrix.write_bytes(b"nothing")
    with pytest.raises(ElmoreError, match="is not a matrix"):
        read_word_vectors(matrix)
    text.write_text("")
    with pytest.raises(InputError, match=r"v.txt:.* there is no vector"):
        read_word_vectors(text)

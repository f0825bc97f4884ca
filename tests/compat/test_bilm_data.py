"""Vocabularies and batchers as bilm-tf's own tests ask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from elmore.compat.bilm import (
    Batcher,
    TokenBatcher,
    UnicodeCharsVocabulary,
    Vocabulary,
)
from elmore.errors import FormatError


def write(path: Path, *words: str) -> Path:
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return path


@pytest.fixture
def words(tmp_path: Path) -> Path:
    return write(tmp_path / "vocab.txt", "<S>", "</S>", "<UNK>", "the", ".", "Āt")


def test_vocabulary(words: Path) -> None:
    vocabulary = Vocabulary(words, validate_file=True)
    assert (vocabulary.bos, vocabulary.eos, vocabulary.unk, vocabulary.size) == (0, 1, 2, 6)
    assert vocabulary.encode("the unknown .").tolist() == [0, 3, 2, 4, 1]
    reverse = vocabulary.encode(". unknown the", reverse=True)
    assert reverse.tolist() == [1, 4, 2, 3, 0]
    assert vocabulary.encode(["the", "."], split=False).tolist() == [0, 3, 4, 1]
    assert vocabulary.decode([0, 3, 1]) == "<S> the </S>"
    assert vocabulary.word_to_id("nothing") == 2
    with pytest.raises(ValueError, match="split=False"):
        vocabulary.encode(["the"])


def test_a_file_without_the_markers(tmp_path: Path) -> None:
    path = write(tmp_path / "words.txt", "the", ".")
    assert (Vocabulary(path).bos, Vocabulary(path).unk) == (-1, -1)
    with pytest.raises(ValueError, match="<S>"):
        Vocabulary(path, validate_file=True)


def test_characters(words: Path) -> None:
    vocabulary = UnicodeCharsVocabulary(words, 5)
    for word, ids in {
        "th": [258, 116, 104, 259, 260],
        "thhhhh": [258, 116, 104, 104, 259],
        "Āt": [258, 196, 128, 116, 259],
        "<S>": [258, 256, 259, 260, 260],
        "</S>": [258, 257, 259, 260, 260],
    }.items():
        assert vocabulary.word_to_char_ids(word).tolist() == ids
    for k, word in enumerate(["<S>", "</S>", "<UNK>", "the", ".", "Āt"]):
        np.testing.assert_array_equal(
            vocabulary.word_char_ids[k], vocabulary.word_to_char_ids(word)
        )
    chars = vocabulary.encode_chars("the unknown .")
    assert chars.shape == (5, 5)
    np.testing.assert_array_equal(chars[0], vocabulary.bos_chars)
    np.testing.assert_array_equal(chars[-1], vocabulary.eos_chars)
    backward = vocabulary.encode_chars(". unknown the", reverse=True)
    np.testing.assert_array_equal(backward, chars[::-1])
    assert vocabulary.max_word_length == 5


def test_batcher(words: Path) -> None:
    ids = Batcher(words, 50).batch_sentences([["The", "first", "sentence"], ["Second", "."]])
    assert ids.shape == (2, 5, 50)
    pad = [261] * 50
    second = [
        [259, 257, 260],
        [259, 84, 102, 100, 112, 111, 101, 260],
        [259, 47, 260],
        [259, 258, 260],
    ]
    for row, expected in zip(ids[1], second, strict=False):
        assert row.tolist() == [*expected, *pad[len(expected) :]]
    assert ids[1, 4].tolist() == [0] * 50
    np.testing.assert_array_equal(ids[0, 4], ids[1, 3])


def test_token_batcher(words: Path, tmp_path: Path) -> None:
    ids = TokenBatcher(words).batch_sentences([["the", "Āt", "."], ["other"]])
    assert ids.tolist() == [[1, 4, 6, 5, 2], [1, 3, 2, 0, 0]]
    poor = write(tmp_path / "poor.txt", "<S>", "</S>", "the")
    with pytest.raises(FormatError, match="no <UNK>"):
        TokenBatcher(poor).batch_sentences([["other"]])

"""Words and their ids."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elmore.errors import FormatError
from elmore.limits import LIMITS
from elmore.text.vocabulary import Vocabulary

# Whatever a line can hold: U+3000 and other spaces are words of some models.
word = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1).filter(
    lambda w: w == w.strip(" \t\r") and w != "!!!MAXTERMID" and not w.startswith("\ufeff")
)


def test_ids_of_bilm_tf_and_unknown_words() -> None:
    """The sentence of bilm-tf's own test."""
    vocabulary = Vocabulary(["<S>", "</S>", "<UNK>", "the", "."])
    assert vocabulary.encode(["<S>", "the", "unknown", ".", "</S>"]).tolist() == [0, 3, 2, 4, 1]
    assert vocabulary.unknown == 2
    assert vocabulary.find("the") == 3
    assert vocabulary.find("nothing") is None
    assert "the" in vocabulary
    assert len(vocabulary) == 5


def test_special_words_are_found_by_name() -> None:
    vocabulary = Vocabulary(["</S>", "<S>", "a", "<UNK>"])
    assert vocabulary.encode(["b", "a", "<S>"]).tolist() == [3, 2, 1]


def test_without_an_unknown_word_every_word_must_be_known() -> None:
    vocabulary = Vocabulary(["a", "b"])
    assert vocabulary.unknown is None
    assert vocabulary.encode(["b", "a"]).tolist() == [1, 0]
    with pytest.raises(FormatError, match="'c' is not in the vocabulary, which has no <UNK>"):
        vocabulary.encode(["a", "c"])


@given(st.lists(word, unique=True, min_size=1))
@example(["\u3000", "a\u00a0", "\x85", "\u2028"])
def test_write_and_read(words: list[str]) -> None:
    vocabulary = Vocabulary(words)
    again = Vocabulary.from_stream(io.BytesIO(vocabulary.to_bytes()), what="words")
    assert again == vocabulary
    assert hash(again) == hash(vocabulary)
    assert list(again) == words


def test_the_line_that_bilm_tf_skips(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"<S>\n</S>\n!!!MAXTERMID\nlast line without an end")
    assert Vocabulary.read(path).words == ("<S>", "</S>", "last line without an end")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a\nb\na\n", "words:3 repeats 'a'; keep each word once"),
        (b"a\n\nb\n", "words:2 is blank"),
        (b"", "words is empty"),
        (b"a\n\xff\n", "line 2|words:2"),
    ],
)
def test_refusals(data: bytes, message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        Vocabulary.from_stream(io.BytesIO(data), what="words")
    assert type(caught.value).__module__ == "elmore.errors"


def test_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = dataclasses.replace(LIMITS, vocabulary_bytes=7)
    monkeypatch.setattr("elmore.text.vocabulary.LIMITS", limits)
    with pytest.raises(FormatError, match="over 7 bytes; is it a vocabulary"):
        Vocabulary.from_stream(io.BytesIO(b"a\nb\nc\nd\n"), what="words")

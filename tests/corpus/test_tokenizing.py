"""Blocks of text: lines, tokens, bytes that are no text."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_corpus import EXPECTED, TEXT, documents, texts, write

from elmore.errors import InputError
from elmore.text.reading import Reading
from elmore.text.tokenizer import tokenize


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.replace("\n", "\r\n"),
        "\ufeff" + TEXT,
        TEXT.rstrip("\n"),
        "\n\n \t\n" + TEXT + "\n\n",
        TEXT.replace("\n\n", "\n \t\r\n\n\n"),
        TEXT.replace(" ", "  "),
    ],
    ids=["plain", "crlf", "bom", "no end", "blanks around", "blanks between", "two spaces"],
)
def test_forms_of_lines(tmp_path: Path, text: str) -> None:
    assert texts([write(tmp_path / "x", text)]) == EXPECTED
    assert texts([write(tmp_path / "x", text)], Reading()) == EXPECTED


def test_only_line_feeds_end_lines_and_only_spaces_part_tokens(tmp_path: Path) -> None:
    odd = "a\x85b\u2028c\x0bd\u00a0e\tf"
    path = write(tmp_path / "x", f"{odd} g\n\x85\n\nh\rh\n")
    assert list(documents([path]).values()) == [[[odd, "g"], ["\x85"]], [["h\rh"]]]
    [first, second] = documents([path], Reading()).values()
    assert first == [list(tokenize(f"{odd} g").tokens)]  # U+0085 alone is white space to it
    assert second == [["h", "h"]]


def test_running_text_is_split(tmp_path: Path) -> None:
    path = write(tmp_path / "x", "One here. Two\r\nthere, Mr. X. And\n\nThree.\n")
    reading = Reading(split_sentences=True)
    assert texts([path], reading) == [["One here .", "Two there , Mr. X .", "And"], ["Three ."]]


BAD = b"fine\nalso fine\n\nnot \xff fine\nfine again\n"


def test_invalid_utf8_names_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.txt", BAD)
    for block_bytes in (1, 1000):
        with pytest.raises(InputError, match=r"bad.txt:4: invalid UTF-8 at byte 4") as caught:
            documents([path], block_bytes=block_bytes)
        assert caught.value.line == 4


def test_invalid_utf8_can_be_replaced_or_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.txt", BAD)
    replaced = texts([path], Reading(tokenized=True, errors="replace"))
    assert replaced[1] == ["not \ufffd fine", "fine again"]
    skipped = texts([path], Reading(tokenized=True, errors="skip"))
    assert skipped[1] == ["fine again"]

"""elmore.base.messages: any text fits into a line, and does nothing to a terminal."""

from __future__ import annotations

import io

import pytest

from elmore.base.messages import (
    printable,
    readable_bytes,
    shown,
    spreadsheet_safe,
    wants_colour,
)


def test_shown() -> None:
    assert shown("päth/x") == "päth/x"
    assert shown("a\nb\x1b\u202e\ud800") == "a\\nb\\x1b\\u202e\\ud800"
    assert len(shown("x" * 500 + "end", 50)) == 50
    assert shown("x" * 500 + "end", 50).endswith("end")


def test_corpus_text_does_not_control_the_terminal() -> None:
    assert printable("a\x1b[31mred\x1b]0;title\x07 \x9b2J\u202eb\x00") == "a[31mred]0;title 2Jb"
    assert printable("one\ttwo\r\nthree\x85four\ud800") == "one two  three four?"
    for text in ("crème brûlée", "می\u200cخواهم", "👩\u200d🔬", "e\u0301"):
        assert printable(text) == text


@pytest.mark.parametrize("cell", ["=1+1", "+cmd", "@sum", "\t=1", "-1+2"])
def test_no_cell_is_a_formula(cell: str) -> None:
    assert spreadsheet_safe(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["", "a=b", "-0.5", "+3", "1e-5", "'x"])
def test_other_cells_stay(cell: str) -> None:
    assert spreadsheet_safe(cell) == cell


def test_readable_bytes() -> None:
    sizes = {0: "0 bytes", 999: "999 bytes", 1000: "1 kB", 999_499: "999 kB", 999_999: "1 MB"}
    sizes |= {3_140_000: "3.14 MB", 999_999_999: "1.0 GB", 2_345_000_000_000: "2,345.0 GB"}
    assert {n: readable_bytes(n) for n in sizes} == sizes


def test_colours_only_on_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert wants_colour(Terminal())
    assert not wants_colour(io.StringIO())
    assert not wants_colour(None)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())

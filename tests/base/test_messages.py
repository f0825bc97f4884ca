"""elmore.base.messages: any text fits into a line."""

from __future__ import annotations

from elmore.base.messages import shown


def test_shown() -> None:
    assert shown("päth/x") == "päth/x"
    assert shown("a\nb\x1b\u202e\ud800") == "a\\nb\\x1b\\u202e\\ud800"
    assert len(shown("x" * 500 + "end", 50)) == 50
    assert shown("x" * 500 + "end", 50).endswith("end")

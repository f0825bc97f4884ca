"""elmore._json: strict parsing."""

from __future__ import annotations

from pathlib import Path

from elmore._json import json_digest, parse_json, read_json


def test_parse_json() -> None:
    data = b'\xef\xbb\xbf{"a": [1, -2.5e3, true, null, "\\u00e9{[,"], "b": {"c": 9007199254740992}}'
    assert parse_json(data, what="x") == {
        "a": [1, -2500.0, True, None, "é{[,"],
        "b": {"c": 2**53},
    }
    assert parse_json(b'{"a":' * 32 + b"1" + b"}" * 32, what="x")
    assert len(parse_json(b'{"a":[' + b",".join([b"1"] * 99_997) + b"]}", what="x")["a"]) == 99_997


def test_read_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"a": 1}')
    assert read_json(tmp_path / "a.json") == {"a": 1}


def test_json_digest() -> None:
    assert json_digest({"a": 1, "b": [2]}) == json_digest({"b": [2], "a": 1})
    assert json_digest({"a": 1}) != json_digest({"a": 2})

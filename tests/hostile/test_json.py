"""JSON that must be refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmore.base.json import parse_json, read_json

from .attack import refused

ATTACKS: dict[str, bytes] = {
    "empty": b"",
    "list": b"[1, 2]",
    "deep lists": b'{"a":' + b"[" * 100_000,
    "deep closed lists": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "depth 33": b'{"a":' * 33 + b"1" + b"}" * 33,
    "unopened": b"]" * 100_000 + b"[" * 100_000,
    "many commas": b'{"a":[' + b"," * 200_000,
    "too large": b'{"a":"' + b"x" * (4 << 20) + b'"}',
    "duplicate key": b'{"dim":1,"dim":2}',
    "escaped duplicate": b'{"dim":1,"d\\u0069m":2}',
    "NaN": b'{"clip":NaN}',
    "Infinity": b'{"clip":Infinity}',
    "float overflow": b'{"clip":1e999}',
    "2**53+1": b'{"dim":9007199254740993}',
    "million digits": b'{"dim":' + b"9" * 1_000_000 + b"}",
    "invalid UTF-8": b'{"a":"\xff\xfe"}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "truncated": b'{"a": 1, "b": ',
    "open string of escapes": b'{"a":"' + b'\\"' * 1_000_000,
    "quotes": b'"' * 1_000_001,
    "trailing": b'{"a":1} {"b":2}',
    "single quotes": b"{'a':1}",
    "control character": b'{"a":"\n"}',
    "two BOMs": b'\xef\xbb\xbf\xef\xbb\xbf{"a":1}',
    "huge bad key": b'{"' + b"k" * 100_000 + b'":1,"' + b"k" * 100_000 + b'":1}',
}


@pytest.mark.parametrize("data", list(ATTACKS.values()), ids=list(ATTACKS))
def test_refused(data: bytes) -> None:
    error = refused(lambda: parse_json(data, what="options.json"))
    assert "options.json" in str(error)


def test_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "options.json"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)  # sparse: 1 TB
    assert "bytes" in str(refused(lambda: read_json(path)))


def test_long_label_still_fits() -> None:
    refused(lambda: parse_json(b"[]", what="'" + "long/\n" * 200 + "'"))

"""safetensors files that must be refused."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from elmore.errors import FormatError
from elmore.formats.containers.safetensors_files import read_safetensors

from .attack import refused

DATA = np.arange(6, dtype="<f4").tobytes()
GOOD = {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}


def pack(header: Any, data: bytes = DATA, *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def one(**changes: Any) -> bytes:
    entry = {**GOOD["w"], **changes}
    return pack({"w": {key: value for key, value in entry.items() if value is not None}})


def two(first: list[int], second: list[int], size: int) -> bytes:
    def entry(offsets: list[int]) -> dict[str, Any]:
        return {"dtype": "I8", "shape": [offsets[1] - offsets[0]], "data_offsets": offsets}

    return pack({"a": entry(first), "b": entry(second)}, b"\0" * size)


def bad_value(value: float, dtype: str, code: str) -> bytes:
    array = np.array([1, value], dtype)
    entry = {"dtype": code, "shape": [2], "data_offsets": [0, array.nbytes]}
    return pack({"w": entry}, array.tobytes())


ATTACKS: dict[str, bytes] = {
    "nothing": b"",
    "seven bytes": b"\0" * 7,
    "length only": b"\0" * 8,
    "header of 0": pack(b"", b""),
    "header of 1": pack(b"{", b""),
    "length beyond file": pack(GOOD, length=10_000),
    "length 2**63": pack(GOOD, length=1 << 63),
    "length 2**64-1": pack(GOOD, length=(1 << 64) - 1),
    "length one short": pack(GOOD, length=len(json.dumps(GOOD)) - 1),
    "length one long": pack(GOOD, length=len(json.dumps(GOOD)) + 1),
    "header too large": pack(b"{" + b" " * (16 << 20) + b"}", b""),
    "starts with a BOM": pack(b"\xef\xbb\xbf" + json.dumps(GOOD).encode()),
    "list": pack([1, 2]),
    "not JSON": pack(b"{not json}"),
    "not UTF-8": pack(b'{"\xff":1}'),
    "deep": pack(b'{"w":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "duplicate key in tensor": pack(
        b'{"w":{"dtype":"F32","shape":[9],"shape":[2,3],"data_offsets":[0,24]}}'
    ),
    "two documents": pack(json.dumps(GOOD).encode() + b"{}"),
    "NaN in header": pack(b'{"w":NaN}'),
    "entry is a list": pack({"w": [1]}),
    "entry is null": pack({"w": None}),
    "without dtype": one(dtype=None),
    "without shape": one(shape=None),
    "without offsets": one(data_offsets=None),
    "unknown dtype": one(dtype="F33"),
    "dtype a number": one(dtype=32),
    "dtype a list": one(dtype=["F32"]),
    "shape negative": one(shape=[-2, -3]),
    "shape a float": one(shape=[2.0, 3]),
    "shape a bool": one(shape=[True, 6]),
    "shape a text": one(shape="23"),
    "shape wrong": one(shape=[2, 4]),
    "shape overflow": one(shape=[1 << 32, 1 << 30]),
    "shape wraps to 24": one(shape=[1 << 53, 1 << 53, 1 << 53]),
    "shape beyond 2**53": one(shape=[1 << 62, 4]),
    "40 dimensions": one(shape=[2, 3] + [1] * 38),
    "offsets three": one(data_offsets=[0, 12, 24]),
    "offsets negative": one(data_offsets=[-24, 0]),
    "offsets backwards": one(data_offsets=[24, 0]),
    "offsets 1 TB": one(shape=[1 << 38], data_offsets=[0, 1 << 40]),
    "offsets beyond file": one(shape=[2, 4], data_offsets=[0, 32]),
    "offsets floats": one(data_offsets=[0.0, 24.0]),
    "starts at 4": one(shape=[5], data_offsets=[4, 24]),
    "does not reach the end": one(shape=[5], data_offsets=[0, 20]),
    "hole": two([0, 4], [8, 12], 12),
    "overlap": two([0, 8], [4, 12], 12),
    "same bytes": two([0, 8], [0, 8], 8),
    "inside another": two([0, 12], [4, 8], 12),
    "tail": pack(GOOD, DATA + b"x"),
    "cut by one": pack(GOOD, DATA[:-1]),
    "metadata a list": pack({"__metadata__": [], **GOOD}),
    "metadata with numbers": pack({"__metadata__": {"a": 1}, **GOOD}),
    "metadata with objects": pack({"__metadata__": {"a": {}}, **GOOD}),
    "zip in front": b"PK\x03\x04" + pack(GOOD),
    "NaN": bad_value(np.nan, "<f4", "F32"),
    "infinite": bad_value(np.inf, "<f8", "F64"),
    "infinite float16": bad_value(-np.inf, "<f2", "F16"),
    "unreadable dtype": pack({"w": {"dtype": "BOOL", "shape": [24], "data_offsets": [0, 24]}}),
}


def use(source: Any) -> None:
    with read_safetensors(source, what="model.safetensors") as view:
        for name in view.shapes:
            view.read(name)


@pytest.mark.parametrize("data", list(ATTACKS.values()), ids=list(ATTACKS))
@pytest.mark.parametrize("kind", ["path", "stream"])
def test_refused(data: bytes, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    source = path if kind == "path" else io.BytesIO(data)
    assert "model.safetensors" in str(refused(lambda: use(source)))


def test_the_maker_can_make_good_files() -> None:
    use(io.BytesIO(pack(GOOD)))
    # Odd, but the library takes them and they are harmless.
    use(io.BytesIO(one(extra=1)))
    use(io.BytesIO(pack(b" " + json.dumps(GOOD).encode())))
    use(io.BytesIO(pack(b'{"w":%s,"w":%s}' % ((json.dumps(GOOD["w"]).encode(),) * 2))))
    use(io.BytesIO(two([0, 4], [4, 12], 12)))


def _damage(change: Callable[[bytes, int], bytes]) -> tuple[int, int]:
    """Count (values equal to the original or refused, silently different headers)."""
    whole = save({"a": np.ones((2, 2), np.float32), "b": np.zeros(3, "i1")}, {"k": "v"})
    n_data = 16 + 3
    refusals = 0
    for i in range(len(whole) - n_data):
        try:
            use(io.BytesIO(change(whole, i)))
        except FormatError:
            refusals += 1
    return refusals, len(whole) - n_data


def test_every_flipped_header_byte_is_safe() -> None:
    refusals, n = _damage(lambda data, i: data[:i] + bytes([data[i] ^ 0xFF]) + data[i + 1 :])
    assert refusals == n  # 0xFF makes every ASCII character invalid


def test_every_truncation_is_refused() -> None:
    refusals, n = _damage(lambda data, i: data[:i])
    assert refusals == n

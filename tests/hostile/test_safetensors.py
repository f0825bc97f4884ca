"""safetensors files that must be refused."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
    "header of 0": pack(b"", b""),
    "length beyond file": pack(GOOD, length=10_000),
    "length 2**64-1": pack(GOOD, length=(1 << 64) - 1),
    "length one short": pack(GOOD, length=len(json.dumps(GOOD)) - 1),
    "starts with a BOM": pack(b"\xef\xbb\xbf" + json.dumps(GOOD).encode()),
    "list": pack([1, 2]),
    "deep": pack(b'{"w":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "entry is a list": pack({"w": [1]}),
    "without dtype": one(dtype=None),
    "unknown dtype": one(dtype="F33"),
    "shape negative": one(shape=[-2, -3]),
    "shape a bool": one(shape=[True, 6]),
    "shape wrong": one(shape=[2, 4]),
    "shape wraps to 24": one(shape=[1 << 53, 1 << 53, 1 << 53]),
    "40 dimensions": one(shape=[2, 3] + [1] * 38),
    "offsets negative": one(data_offsets=[-24, 0]),
    "offsets 1 TB": one(shape=[1 << 38], data_offsets=[0, 1 << 40]),
    "offsets beyond file": one(shape=[2, 4], data_offsets=[0, 32]),
    "does not reach the end": one(shape=[5], data_offsets=[0, 20]),
    "hole": two([0, 4], [8, 12], 12),
    "overlap": two([0, 8], [4, 12], 12),
    "tail": pack(GOOD, DATA + b"x"),
    "cut by one": pack(GOOD, DATA[:-1]),
    "metadata a list": pack({"__metadata__": [], **GOOD}),
    "NaN": bad_value(np.nan, "<f4", "F32"),
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

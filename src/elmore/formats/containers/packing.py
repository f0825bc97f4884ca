"""Rows of small numbers, and texts, as bytes that compress well."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


def pair_type(k: int) -> np.dtype[Any]:
    """The type of a row: k ids, each once, with weights."""
    return np.dtype([("ids", "<u2", (k,)), ("weights", "|u1", (k,))])


def pack_pairs(rows: NDArray[Any]) -> bytes:
    """Up to 256 rows of `pair_type`, which may share many ids.

    Pairs are sorted by id, then by row. Each has four bytes: its weight, the difference to the row
    before (modulo 256), and that to the id before in two. The first bytes of all pairs come first,
    then the second ones, and so on.
    """
    ids, numbers = rows["ids"].astype(np.uint32), np.arange(len(rows), dtype=np.uint32)
    keys = np.sort((ids << 16 | numbers[:, None] << 8 | rows["weights"]).ravel())
    keys = np.diff(keys >> 16, prepend=np.uint32(0)) << 16 | keys & 0xFFFF
    planes = keys.astype("<u4").view(np.uint8).reshape(-1, 4).T.copy()
    planes[1] = np.diff(planes[1], prepend=np.uint8(0))
    return planes.tobytes()


def unpack_pairs(k: int, data: bytes, n: int) -> NDArray[Any] | None:
    """The n rows that `pack_pairs` packed, each by id; None if they are not that."""
    planes = np.frombuffer(data, np.uint8)
    if len(planes) != 4 * n * k:
        return None
    weights, steps, low, high = planes.reshape(4, -1)
    numbers = np.cumsum(steps, dtype=np.uint8)
    order = np.argsort(numbers, kind="stable")
    if (numbers[order] != np.repeat(np.arange(n), k)).any():
        return None
    result = np.empty(n, pair_type(k))
    ids = np.cumsum(low + 256 * high.astype(np.uint16), dtype=np.uint16)
    result["ids"], result["weights"] = ids[order].reshape(n, k), weights[order].reshape(n, k)
    return result


def pack_two_bits(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Each number of (n, width) in two bits: its sign, and whether it is large in its row.

    Large is more than the root of the mean square, which a third of all numbers are.
    """
    usual = np.sqrt((values * values).mean(axis=1, keepdims=True))
    bits = np.stack([values < 0, np.abs(values) > usual], axis=2)
    return np.packbits(bits.reshape(len(values), 2 * values.shape[1]), axis=1)


def unpack_two_bits(codes: NDArray[np.uint8], width: int) -> NDArray[np.float32]:
    """What `pack_two_bits` packed, as far as it is known, with a mean square of about 1."""
    bits = np.unpackbits(codes, axis=1, count=2 * width).reshape(len(codes), width, 2)
    # The means of small and of large numbers with a normal distribution.
    sizes = np.array([0.46, 1.52], np.float32)[bits[:, :, 1]]
    return np.where(bits[:, :, 0], -sizes, sizes)


def pack_texts(texts: Sequence[bytes]) -> bytes:
    """The size of each text, then all of them."""
    return np.array([*map(len, texts)], "<i4").tobytes() + b"".join(texts)


def unpack_texts(data: bytes, n: int) -> list[bytes] | None:
    """The n texts that `pack_texts` packed; None if they are not that."""
    sizes = np.frombuffer(data[: 4 * n], "<i4") if len(data) >= 4 * n else np.array([-1])
    ends = 4 * n + np.cumsum(sizes, dtype=np.int64)
    if sizes.min() < 0 or ends[-1] != len(data):
        return None
    return [data[start:end] for start, end in pairwise((4 * n, *ends))]

"""CRC-32C (Castagnoli), the checksum of TensorFlow's files, fast enough for whole models.

numpy has no such function and a loop over bytes would take minutes, so a block is cut into many
short lanes that advance side by side; the remainders of neighbours are then joined pairwise
(a CRC is linear: the remainder of A followed by B is A's, moved past B's length, plus B's).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["crc32c", "masked_crc32c"]

_POLYNOMIAL = 0x82F63B78
_LANE = 64  # bytes of a lane
_LANES = 1 << 14
_BLOCK = _LANE * _LANES
_MASK_DELTA = 0xA282EAD8

Words = NDArray[np.uint32]


def crc32c(chunks: Iterable[bytes | memoryview]) -> int:
    """Give the checksum of bytes that come in pieces."""
    state = 0xFFFFFFFF
    for chunk in chunks:
        view = memoryview(chunk).cast("B")
        whole = len(view) // _BLOCK * _BLOCK
        for start in range(0, whole, _BLOCK):
            block = np.frombuffer(view[start : start + _BLOCK], "<u4")
            state = int(_shift(np.array([state], np.uint32), _BLOCK)[0]) ^ _remainder(block)
        # The rest by lanes as well, in powers of two, and at last byte by byte.
        start = whole
        size = _BLOCK // 2
        while size >= _LANE:
            if len(view) - start >= size:
                block = np.frombuffer(view[start : start + size], "<u4")
                state = int(_shift(np.array([state], np.uint32), size)[0]) ^ _remainder(block)
                start += size
            size //= 2
        table = _byte_list()
        for byte in view[start:]:
            state = table[(state ^ byte) & 255] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


def masked_crc32c(chunks: Iterable[bytes | memoryview]) -> int:
    """Give the checksum as TensorFlow and LevelDB store it."""
    crc = crc32c(chunks)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def _remainder(block: Words) -> int:
    """Remainder of a block of a power of two of lanes, from the state 0."""
    lanes = np.ascontiguousarray(block.reshape(-1, _LANE // 4).T)
    low, high = _half_tables()
    state = np.zeros(lanes.shape[1], np.uint32)
    for words in lanes:
        state ^= words
        state = low[state & 0xFFFF] ^ high[state >> 16]
    length = _LANE
    while len(state) > 1:
        state = _shift(state[::2], length) ^ state[1::2]
        length *= 2
    return int(state[0])


def _shift(state: Words, length: int) -> Words:
    """Move remainders past `length` zero bytes."""
    tables = _shift_tables(length)
    return np.asarray(
        tables[0][state & 255]
        ^ tables[1][(state >> 8) & 255]
        ^ tables[2][(state >> 16) & 255]
        ^ tables[3][state >> 24]
    )


@functools.cache
def _bytes_table() -> Words:
    table: Words = np.arange(256, dtype=np.uint32)
    one = np.uint32(1)
    for _ in range(8):
        table = (table >> one) ^ np.where(table & one, np.uint32(_POLYNOMIAL), np.uint32(0))
    return table


@functools.cache
def _byte_list() -> list[int]:
    return [int(value) for value in _bytes_table()]


@functools.cache
def _half_tables() -> tuple[Words, Words]:
    """What four zero bytes make of the lower and of the upper half of a state."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    return _past_zeros(halves), _past_zeros(halves << np.uint32(16))


def _past_zeros(state: Words) -> Words:
    table = _bytes_table()
    for _ in range(4):
        state = table[state & 255] ^ (state >> 8)
    return state


@functools.cache
def _shift_tables(length: int) -> tuple[Words, ...]:
    """Tables of the four bytes of a state; `length` is a power of two and at least 4."""
    starts = [np.arange(256, dtype=np.uint32) << np.uint32(8 * k) for k in range(4)]
    if length == 4:
        return tuple(_past_zeros(start) for start in starts)
    half = length // 2
    return tuple(_shift(_shift(start, half), half) for start in starts)

"""CRC-32C (Castagnoli), fast enough for complete models.

Neither numpy nor the standard library has it, and a loop over bytes would take minutes. A CRC is
linear: the remainder of A followed by B is that of A, shifted by the length of B, plus that of B.
So the bytes are cut into many short lanes that advance together, and the remainders of neighbours
are then joined in pairs.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

__all__ = ["crc32c", "masked_crc32c"]

_POLYNOMIAL = 0x82F63B78  # bits in reverse order
_LANE = 64  # bytes of a lane
_BLOCK = 1 << 20
# A checksum starts from all ones, which is the state after these bytes. Zeros before them change
# nothing, so that any data can be filled up to a complete block.
_START = np.frombuffer(bytes.fromhex("54641f64"), np.uint8)
_MASK_DELTA = 0xA282EAD8  # LevelDB masks checksums, because data may contain checksums

Words = NDArray[np.uint32]


def crc32c(data: bytes | NDArray[np.uint8]) -> int:
    """The checksum of some bytes."""
    flat = np.concatenate([_START, np.frombuffer(data, np.uint8)])
    state = 0
    for start in range(-(-len(flat) % _BLOCK), len(flat), _BLOCK):  # only the first may be short
        part = flat[max(start, 0) : start + _BLOCK]
        size = max(_LANE, 1 << (len(part) - 1).bit_length())
        block = np.zeros(size, np.uint8)
        block[size - len(part) :] = part
        words = block.view("<u4")
        words[0] ^= np.uint32(state)
        state = _remainder(words)
    return state ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | NDArray[np.uint8]) -> int:
    """The checksum as TensorFlow and LevelDB store it."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def _remainder(block: Words) -> int:
    """The remainder of a block whose number of lanes is a power of two."""
    low, high = _half_tables()
    lanes = np.ascontiguousarray(block.reshape(-1, _LANE // 4).T)
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
    """Shift remainders by `length` zero bytes."""
    tables = _shift_tables(length)
    return np.asarray(
        tables[0][state & 255]
        ^ tables[1][(state >> 8) & 255]
        ^ tables[2][(state >> 16) & 255]
        ^ tables[3][state >> 24]
    )


@functools.cache
def _half_tables() -> tuple[Words, Words]:
    """The lower and the upper half of a state after four zero bytes."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    return _past_zeros(halves), _past_zeros(halves << np.uint32(16))


@functools.cache
def _shift_tables(length: int) -> tuple[Words, ...]:
    """Tables for the four bytes of a state; `length` is a power of two and at least 4."""
    starts = [np.arange(256, dtype=np.uint32) << np.uint32(8 * k) for k in range(4)]
    if length == 4:
        return tuple(_past_zeros(start) for start in starts)
    half = length // 2
    return tuple(_shift(_shift(start, half), half) for start in starts)


def _past_zeros(state: Words) -> Words:
    """States after four zero bytes, bit by bit."""
    one, polynomial = np.uint32(1), np.uint32(_POLYNOMIAL)
    for _ in range(32):
        state = (state >> one) ^ np.where(state & one, polynomial, np.uint32(0))
    return state

"""The table of sorted keys in the index of a TensorFlow checkpoint (LevelDB's file format).

Each block has a CRC-32C, which is compared before its contents are read. The blocks must follow
each other without gap or overlap, so that every byte of the file is checked.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.errors import FormatError

__all__ = ["crc32c", "masked_crc32c", "read_table", "read_varint"]

_POLYNOMIAL = 0x82F63B78  # bits in reverse order
_LANE = 64  # bytes of a lane
_LANES = 1 << 14
_BLOCK = _LANE * _LANES
_MASK_DELTA = 0xA282EAD8  # LevelDB masks checksums, because data may contain checksums

Words = NDArray[np.uint32]


def crc32c(chunks: Iterable[bytes | memoryview]) -> int:
    """CRC-32C (Castagnoli) of bytes that come in chunks; fast enough for complete models.

    numpy has no such function and a loop over bytes would take minutes. So a block is cut into
    many short lanes that advance together, and the remainders of neighbours are then joined in
    pairs. This works because a CRC is linear: the remainder of A followed by B is that of A,
    shifted by the length of B, plus that of B.
    """
    state = 0xFFFFFFFF
    for chunk in chunks:
        view = memoryview(chunk).cast("B")
        start, size = 0, _BLOCK
        # Large blocks first, then smaller ones by powers of two, and the last bytes one by one.
        while size >= _LANE:
            while len(view) - start >= size:
                block = np.frombuffer(view[start : start + size], "<u4")
                state = int(_shift(np.array([state], np.uint32), size)[0]) ^ _remainder(block)
                start += size
            size //= 2
        table = _byte_list()
        for byte in view[start:]:
            state = table[(state ^ byte) & 255] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


def masked_crc32c(chunks: Iterable[bytes | memoryview]) -> int:
    """The checksum as TensorFlow and LevelDB store it."""
    crc = crc32c(chunks)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def _remainder(block: Words) -> int:
    """Remainder of a block from the state 0; its number of lanes is a power of two."""
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
    """Shift remainders by `length` zero bytes."""
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
    # Python numbers: indexing a numpy array byte by byte is several times slower.
    return [int(value) for value in _bytes_table()]


@functools.cache
def _half_tables() -> tuple[Words, Words]:
    """The lower and the upper half of a state after four zero bytes."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    return _past_zeros(halves), _past_zeros(halves << np.uint32(16))


def _past_zeros(state: Words) -> Words:
    table = _bytes_table()
    for _ in range(4):
        state = table[state & 255] ^ (state >> 8)
    return state


@functools.cache
def _shift_tables(length: int) -> tuple[Words, ...]:
    """Tables for the four bytes of a state; `length` is a power of two and at least 4."""
    starts = [np.arange(256, dtype=np.uint32) << np.uint32(8 * k) for k in range(4)]
    if length == 4:
        return tuple(_past_zeros(start) for start in starts)
    half = length // 2
    return tuple(_shift(_shift(start, half), half) for start in starts)


_FOOTER = 48
_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_TRAILER = 5  # kind of compression and checksum after each block


def read_table(data: bytes, *, what: str) -> dict[bytes, bytes]:
    """Read all keys and values of a table.

    Raises:
        FormatError: not such a table, damaged, or compressed.
    """
    return _SortedTable(data, what).entries()


def read_varint(data: bytes, at: int, *, what: str) -> tuple[int, int]:
    """Read a number of 7 bits per byte, lowest first; return it and the position after it."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            if value >> 64:
                break
            return value, at
    raise _damaged(what, "a number that does not end")


class _SortedTable:
    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what

    def entries(self) -> dict[bytes, bytes]:
        data, what = self._data, self._what
        if len(data) < _FOOTER or data[-8:] != _MAGIC:
            raise FormatError(
                f"'{what}' does not end like the index of a TensorFlow checkpoint; it is cut off "
                "or another file, copy it again"
            )
        footer = data[-_FOOTER:-8]  # two handles, padded with zeros
        meta, at = self._handle(footer, 0)
        index, at = self._handle(footer, at)
        if footer[at:].strip(b"\0"):
            raise _damaged(what, "no zeros before its end")
        blocks = [self._handle_alone(value) for _, value in self._block(index)]
        # Blocks follow each other without gaps; anything else is damage, or two blocks
        # that share bytes.
        free = 0
        for offset, size in [*blocks, meta, index]:
            if offset != free:
                raise _damaged(what, f"a block at {offset} where {free} is next")
            free = offset + size + _TRAILER
        if free != len(data) - _FOOTER:
            raise _damaged(what, "bytes that belong to no block")
        self._block(meta)
        found: dict[bytes, bytes] = {}
        last: bytes | None = None
        for block in blocks:
            for key, value in self._block(block):
                if last is not None and key <= last:
                    raise _damaged(what, f"the key {shown(key, 40)} out of order")
                found[key] = value
                last = key
        return found

    def _handle(self, data: bytes, at: int) -> tuple[tuple[int, int], int]:
        offset, at = read_varint(data, at, what=self._what)
        size, at = read_varint(data, at, what=self._what)
        return (offset, size), at

    def _handle_alone(self, data: bytes) -> tuple[int, int]:
        handle, at = self._handle(data, 0)
        if at != len(data):
            raise _damaged(self._what, "a handle that is too long")
        return handle

    def _block(self, handle: tuple[int, int]) -> list[tuple[bytes, bytes]]:
        offset, size = handle
        end = offset + size
        if end + _TRAILER > len(self._data) - _FOOTER:
            raise _damaged(self._what, f"a block at {offset} that reaches beyond its end")
        raw = self._data[offset:end]
        kind = self._data[end]
        (checksum,) = struct.unpack_from("<I", self._data, end + 1)
        if masked_crc32c([raw, bytes([kind])]) != checksum:
            raise _damaged(self._what, f"a wrong checksum of the block at {offset}")
        if kind:
            raise FormatError(
                f"'{self._what}' has a block compressed by method {kind}, which no TensorFlow "
                "checkpoint has; save the checkpoint again"
            )
        return self._entries(raw)

    def _entries(self, raw: bytes) -> list[tuple[bytes, bytes]]:
        what = self._what
        if len(raw) < 8:
            raise _damaged(what, "a block without entries")
        (count,) = struct.unpack_from("<I", raw, len(raw) - 4)
        end = len(raw) - 4 - 4 * count
        if not count or end < 0:
            raise _damaged(what, f"a block with {count} restarts")
        restarts = set(struct.unpack_from(f"<{count}I", raw, end))
        entries: list[tuple[bytes, bytes]] = []
        key, at = b"", 0
        while at < end:
            first = at
            # A key is stored without the part that it shares with the previous one.
            shared, at = read_varint(raw, at, what=what)
            rest, at = read_varint(raw, at, what=what)
            length, at = read_varint(raw, at, what=what)
            if shared > len(key) or (first in restarts and shared) or at + rest + length > end:
                raise _damaged(what, "an entry that reaches beyond its block")
            restarts.discard(first)
            key = key[:shared] + raw[at : at + rest]
            entries.append((key, raw[at + rest : at + rest + length]))
            at += rest + length
        if at != end or restarts - ({0} if not entries else set()):
            raise _damaged(what, "restarts where no entry begins")
        return entries


def _damaged(what: str, problem: str) -> FormatError:
    return FormatError(f"'{what}' has {problem}; it is damaged, copy the checkpoint again")

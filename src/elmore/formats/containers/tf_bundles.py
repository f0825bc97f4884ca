"""TensorFlow checkpoints ("tensor bundles") without TensorFlow: an index and raw shards.

The index is a table of LevelDB: sorted keys and protocol buffers in blocks. Only the table of
tensors is read: no graph, no operations. Each block and each array is compared with its CRC-32C.
"""

from __future__ import annotations

import functools
import math
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.errors import FormatError
from elmore.formats.containers.arrays import Arrays, from_bytes, item_size
from elmore.formats.containers.sources import Source
from elmore.limits import LIMITS

# TensorFlow's numbers of the types that we read (types.proto).
_TYPES = {1: "float32", 2: "float64", 14: "bfloat16", 19: "float16"}
_FOOTER = 48
_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)


def find_prefixes(source: Source) -> list[str]:
    """The checkpoints in a source: names that have an index and a first shard."""
    names = source.names
    found = []
    for name in names:
        prefix = name.removesuffix(".index")
        if prefix != name and any(other.startswith(f"{prefix}.data-00000-of-") for other in names):
            found.append(prefix)
    return found


@dataclass(frozen=True, slots=True)
class _Variable:
    """Type, shape and place of a tensor, and the masked checksum of its bytes."""

    kind: str
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int


def open_bundle(source: Source, prefix: str) -> Arrays:
    """Open a checkpoint: read its index and compare it with the shards.

    Args:
        source: the files; they stay open as long as the arrays are used.
        prefix: name of the checkpoint, such as `model.ckpt-10`.
    """
    what = f"{prefix}.index"
    try:
        table = read_table(source.read(what, LIMITS.table_bytes), what=what)
        n_shards = _read_header(table.pop(b"", b""), what)
        # Slices of variables have binary keys; nobody asks for them.
        variables = {key.decode("utf-8", "replace"): _entry(table[key]) for key in table}
        if any(variable.shard >= n_shards for variable in variables.values()):
            raise ValueError(f"arrays in more than its {n_shards} shards")
    except (ValueError, IndexError, struct.error) as error:
        raise _damaged(what, shown(error, 60)) from None
    with ExitStack() as stack:
        shards = []
        for k in range(n_shards):
            name = f"{prefix}.data-{k:05d}-of-{n_shards:05d}"
            shards.append(stack.enter_context(source.open(name)))
            size = shards[k].seek(0, os.SEEK_END)
            needed = max((v.offset + v.size for v in variables.values() if v.shard == k), default=0)
            if size != needed:
                raise FormatError(
                    f"'{name}' has {size} bytes, its index asks for {needed}; copy the checkpoint "
                    "again"
                )

        def read(name: str) -> NDArray[Any]:
            variable = variables[name]
            if variable.kind not in _TYPES.values():
                raise _damaged(what, f"{shown(name, 60)} is {variable.kind}")
            shard = shards[variable.shard]
            shard.seek(variable.offset)
            data = shard.read(variable.size)
            if masked_crc32c(data) != variable.checksum:
                raise _damaged(what, f"{shown(name, 60)} differs from its checksum")
            return from_bytes(data, variable.kind).reshape(variable.shape)

        return Arrays(
            what,
            {name: variable.shape for name, variable in variables.items()},
            {name: variable.kind for name, variable in variables.items()},
            read,
            stack.pop_all().close,
        )


def _read_header(data: bytes, what: str) -> int:
    """The number of shards."""
    fields = _fields(data)
    # Field 2 is the byte order. Little-endian is 0, which writers leave out.
    if _number(fields, 2):
        raise FormatError(f"'{what}' has big-endian numbers; save it on a little-endian machine")
    return _number(fields, 1)


def _entry(data: bytes) -> _Variable:
    fields = _fields(data)
    dims = [dim for message in fields.get(2, []) for dim in _fields(message).get(2, [])]
    shape = tuple(_number(_fields(dim), 1) for dim in dims)
    number, size = _number(fields, 1), _number(fields, 5)
    kind = _TYPES.get(number, f"of type {number}")
    if 7 in fields:
        kind = "split into slices"
    elif number in _TYPES and (math.prod(shape) * item_size(kind) != size or len(shape) > 8):
        raise ValueError(f"an array of shape {shown(shape, 40)} in {size} bytes")
    places = (_number(fields, 3), _number(fields, 4))
    return _Variable(kind, shape, *places, size, _number(fields, 6))


# Protocol buffers ---------------------------------------------------------------------------------


def _fields(data: int | bytes) -> dict[int, list[int | bytes]]:
    """Parse a message: the values of each field number."""
    if isinstance(data, int):
        raise ValueError("a number in place of a message")
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value: int | bytes
        if tag & 7 == 0:
            value, at = _varint(data, at)
        elif tag & 7 == 5:  # fixed 32 bits; the checksum is stored in this way
            value, at = struct.unpack_from("<I", data, at)[0], at + 4
        elif tag & 7 == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"a field of wire type {tag & 7}")
        found.setdefault(tag >> 3, []).append(value)
    if at != len(data):
        raise ValueError("an entry that is cut off")
    return found


def _number(fields: Mapping[int, list[int | bytes]], field: int) -> int:
    values = fields.get(field, [0])
    # A negative number is stored as 64 bits with the highest one set.
    if len(values) != 1 or not isinstance(values[0], int) or values[0] >> 63:
        raise ValueError(f"field {field} that is not a number")
    return values[0]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of 7 bits per byte, lowest first; return it and the position after it."""
    value = 0
    for shift in range(0, 64, 7):
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise ValueError("a number that does not end")


# The table ----------------------------------------------------------------------------------------


def read_table(data: bytes, *, what: str) -> dict[bytes, bytes]:
    """Read all keys and values of a table.

    Raises:
        FormatError: not such a table, or compressed.
        ValueError: it is damaged; IndexError and struct.error mean the same.
    """
    if len(data) < _FOOTER or data[-8:] != _MAGIC:
        raise FormatError(
            f"'{what}' does not end like the index of a TensorFlow checkpoint; it is cut off or "
            "another file, copy it again"
        )
    footer = data[-_FOOTER:]  # the places of two blocks, the second of which lists all others
    _, at = _varint(footer, 0)
    _, at = _varint(footer, at)
    blocks = _block(data, footer[at:])
    return {key: value for _, place in blocks for key, value in _block(data, place)}


def _block(data: bytes, place: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a block; `place` starts with its offset and size."""
    offset, at = _varint(place, 0)
    size, _ = _varint(place, at)
    raw, trailer = data[offset : offset + size], data[offset + size : offset + size + 5]
    compression, checksum = struct.unpack("<BI", trailer)
    if masked_crc32c(raw + trailer[:1]) != checksum:
        raise ValueError(f"a wrong checksum of the block at {offset}")
    if compression:
        raise ValueError(f"a block compressed by method {compression}")
    # At the end are the positions of entries with complete keys, and their number.
    end = len(raw) - 4 - 4 * struct.unpack("<I", raw[-4:])[0]
    key, at = b"", 0
    while at < end:
        # A key is stored without the part that it shares with the previous one.
        shared, at = _varint(raw, at)
        rest, at = _varint(raw, at)
        length, at = _varint(raw, at)
        key = key[:shared] + raw[at : at + rest]
        at += rest + length
        yield key, raw[at - length : at]
    if at != end:
        raise ValueError("an entry that reaches beyond its block")


def _damaged(what: str, problem: str) -> FormatError:
    return FormatError(f"'{what}' has {problem}; it is damaged, copy the checkpoint again")


# CRC-32C (Castagnoli), fast enough for complete models.
# Neither numpy nor the standard library has it, and a loop over bytes would take minutes. A CRC is
# linear: the remainder of A followed by B is that of A, shifted by the length of B, plus that of B.
# So remainders are computed for all words at once, and then joined in pairs.

_POLYNOMIAL = 0x82F63B78  # bits in reverse order
_BLOCK = 1 << 20  # words that are computed at a time; a power of two
# A checksum starts from all ones, which is the state after these bytes. Zeros before them change
# nothing, so that any data can be filled up to complete blocks.
_START = np.frombuffer(bytes.fromhex("54641f64"), np.uint8)
_MASK_DELTA = 0xA282EAD8  # LevelDB masks checksums, because data may contain checksums


def crc32c(data: bytes) -> int:
    """The checksum of some bytes."""
    n_words = len(data) // 4 + 2
    block = min(_BLOCK, 1 << (n_words - 1).bit_length())
    words = np.zeros(-(-n_words // block) * block, "<u4")
    flat = words.view(np.uint8)
    flat[len(flat) - len(data) :] = np.frombuffer(data, np.uint8)
    flat[len(flat) - len(data) - 4 : len(flat) - len(data)] = _START
    total = np.zeros(1, np.uint32)
    for start in range(0, len(words), block):
        state, doublings = _shift(words[start : start + block], 0), 0
        while len(state) > 1:
            state = _shift(state[::2], doublings) ^ state[1::2]
            doublings += 1
        total = _shift(total, doublings) ^ state
    return int(total[0]) ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The checksum as TensorFlow and LevelDB store it."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def _shift(state: Any, doublings: int) -> Any:
    """Shift remainders by the zero bytes of 2**doublings words."""
    low, high = _tables(doublings)
    return low[state & 0xFFFF] ^ high[state >> 16]


@functools.cache
def _tables(doublings: int) -> NDArray[np.uint32]:
    """What each half of a remainder becomes in `_shift`, (2, 65536)."""
    if doublings:
        halved = doublings - 1
        return np.asarray(_shift(_tables(halved), halved))
    halves = np.arange(1 << 16, dtype=np.uint32)
    tables = np.stack([halves, halves << np.uint32(16)])
    for _ in range(32):  # bit by bit
        tables = (tables >> np.uint32(1)) ^ (tables & np.uint32(1)) * np.uint32(_POLYNOMIAL)
    return tables

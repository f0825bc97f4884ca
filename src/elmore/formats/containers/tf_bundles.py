"""TensorFlow checkpoints ("tensor bundles") without TensorFlow: an index and raw shards.

Only the table of tensors is read: no graph, no operations. Offsets and sizes are compared with the
shards before any array is read. Each array is compared with its CRC-32C when it is read.
"""

from __future__ import annotations

import math
import os
import re
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.errors import FormatError
from elmore.formats.containers.finite import finite_float32
from elmore.formats.containers.sorted_tables import masked_crc32c, read_table, read_varint
from elmore.formats.containers.sources import Source
from elmore.limits import LIMITS

__all__ = ["Bundle", "Variable", "find_prefixes", "open_bundle"]

_CHUNK = 1 << 24
# TensorFlow's numbers of types (types.proto): those that we read, and bytes per value of all.
_FLOATS: dict[int, np.dtype[Any]] = {1: np.dtype("<f4"), 2: np.dtype("<f8"), 19: np.dtype("<f2")}
_BFLOAT16 = 14
_ITEM = {1: 4, 2: 8, 3: 4, 4: 1, 5: 2, 6: 1, 9: 8, 10: 1, 14: 2, 17: 2, 19: 2, 22: 4, 23: 8}
_TYPE_NAMES = {1: "float32", 2: "float64", 14: "bfloat16", 19: "float16"}


@dataclass(frozen=True, slots=True)
class Variable:
    """Type, shape and place of a tensor.

    Attributes:
        kind: TensorFlow's number of its type.
        shape: its shape.
        shard: number of the data file.
        offset: first byte there.
        size: bytes.
        checksum: masked CRC-32C of these bytes.
        sliced: whether it is split into slices that are stored under other keys.
    """

    kind: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool

    @property
    def type_name(self) -> str:
        """The type as numpy calls it."""
        return _TYPE_NAMES.get(self.kind, f"type {self.kind}")


def find_prefixes(source: Source) -> list[str]:
    """The checkpoints in a source: names that have an index and a first shard."""
    names = source.names()
    found = []
    for name in names:
        prefix = name.removesuffix(".index")
        if prefix != name and any(other.startswith(f"{prefix}.data-00000-of-") for other in names):
            found.append(prefix)
    return found


class Bundle:
    """The tensors of a checkpoint, read on request. Made by `open_bundle`."""

    def __init__(
        self, variables: Mapping[str, Variable], shards: list[BinaryIO], what: str
    ) -> None:
        self.variables = dict(variables)
        self._shards = shards
        self._what = what

    def read(self, name: str) -> NDArray[np.float32]:
        """Read a tensor as float32 and compare it with its checksum.

        Raises:
            FormatError: of another type, damaged, or not finite.
        """
        variable = self.variables[name]
        dtype: np.dtype[Any] = _FLOATS.get(variable.kind, np.dtype("<u2"))
        if variable.sliced or variable.kind not in _TYPE_NAMES:
            what = "is split into slices" if variable.sliced else f"has {variable.type_name}"
            raise self._error(f"{shown(name, 60)} {what}", "save it as one float32 variable")
        raw: NDArray[Any] = np.empty(variable.shape, dtype)
        if masked_crc32c(self._fill(variable, raw)) != variable.checksum:
            raise self._error(
                f"{shown(name, 60)} differs from its checksum", "it is damaged, copy it again"
            )
        if variable.kind == _BFLOAT16:  # the upper half of a float32
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        return finite_float32(raw, what=self._what, name=name)

    def _fill(self, variable: Variable, raw: NDArray[Any]) -> Iterator[memoryview]:
        """Read a tensor's bytes into an array; yield them in chunks for the checksum."""
        stream = self._shards[variable.shard]
        view = raw.reshape(-1).view(np.uint8).data
        stream.seek(variable.offset)
        for start in range(0, variable.size, _CHUNK):
            part = view[start : start + _CHUNK]
            data = stream.read(len(part))
            if len(data) != len(part):
                raise self._error("its shard ends too early", "copy the checkpoint again")
            part[:] = data
            yield part

    def _error(self, problem: str, fix: str) -> FormatError:
        return FormatError(f"'{self._what}': {problem}; {fix}")


def open_bundle(source: Source, prefix: str) -> Bundle:
    """Open a checkpoint: read its index and compare it with the shards.

    Args:
        source: the files; they stay open as long as the bundle lives.
        prefix: name of the checkpoint, such as `model.ckpt-10`.
    """
    what = f"{prefix}.index"
    table = read_table(source.read(what, LIMITS.table_bytes), what=what)
    # The header has the empty key, which comes before all names.
    header = table.pop(b"", None)
    if header is None:
        raise FormatError(f"'{what}' has no header; it is not the index of a TensorFlow checkpoint")
    n_shards = _read_header(header, what)
    variables: dict[str, Variable] = {}
    for key, value in table.items():
        try:
            variables[key.decode()] = _read_entry(value, what, shown(key, 40))
        except UnicodeDecodeError:
            # Slices of variables have binary keys; only their places matter.
            variables[f"\0{key.hex()}"] = _read_entry(value, what, shown(key, 40))
    with ExitStack() as stack:
        shards = []
        for k in range(n_shards):
            name = f"{prefix}.data-{k:05d}-of-{n_shards:05d}"
            stream = stack.enter_context(source.open(name))
            shards.append(stream)
            size = stream.seek(0, os.SEEK_END)
            _check_places([v for v in variables.values() if v.shard == k], size, name)
        for name, variable in variables.items():
            if variable.shard >= n_shards:
                raise _broken(what, f"{shown(name, 40)} in shard {variable.shard} of {n_shards}")
        bundle = Bundle(variables, shards, what)
        weakref.finalize(bundle, stack.pop_all().close)
    return bundle


def _check_places(variables: list[Variable], size: int, shard: str) -> None:
    """Refuse tensors that overlap or leave the shard, and a shard with bytes left over."""
    free = 0
    for variable in sorted(variables, key=lambda v: (v.offset, v.size)):
        # Gaps are fine: writers align tensors.
        if variable.offset < free:
            raise _broken(shard, "tensors that overlap")
        free = variable.offset + variable.size
    if free != size:
        raise FormatError(
            f"'{shard}' has {size} bytes, its index asks for {free}; copy the checkpoint again"
        )


def _read_header(data: bytes, what: str) -> int:
    fields = _fields(data, what)
    # Field 2 is the byte order. Little-endian is 0, which writers leave out.
    if fields.get(2, [0]) != [0]:
        raise FormatError(f"'{what}' has big-endian numbers; save it on a little-endian machine")
    n_shards = _number(fields, 1, what)
    if not 1 <= n_shards <= LIMITS.table_shards:
        raise _broken(what, f"{n_shards} shards, allowed are 1..{LIMITS.table_shards}")
    return n_shards


def _read_entry(data: bytes, what: str, name: str) -> Variable:
    fields = _fields(data, what)
    shape: list[int] = []
    for message in fields.get(2, []):
        for dim in _fields(_bytes(message, what), what).get(2, []):
            shape.append(_number(_fields(_bytes(dim, what), what), 1, what))
    variable = Variable(
        kind=_number(fields, 1, what),
        shape=tuple(shape),
        shard=_number(fields, 3, what),
        offset=_number(fields, 4, what),
        size=_number(fields, 5, what),
        checksum=_number(fields, 6, what),
        sliced=7 in fields,
    )
    item = _ITEM.get(variable.kind)
    if len(shape) > 8 or any(n > LIMITS.model_bytes for n in shape):
        raise _broken(what, f"{name} of shape {shown(shape, 40)}")
    if item is not None and not variable.sliced and math.prod(shape) * item != variable.size:
        raise _broken(what, f"{name} of shape {shown(shape, 40)} in {variable.size} bytes")
    if max(variable.offset, variable.size) > LIMITS.archive_unpacked_bytes:
        raise _broken(what, f"{name} of {variable.size} bytes at {variable.offset}")
    return variable


def _fields(data: bytes, what: str) -> dict[int, list[int | bytes]]:
    """Parse a protocol buffer: the values of each field number."""
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at, what=what)
        value: int | bytes
        if tag & 7 == 0:
            value, at = read_varint(data, at, what=what)
        # Fixed 64 or 32 bits; the checksum is stored in this way.
        elif tag & 7 in (1, 5):
            size = 8 if tag & 7 == 1 else 4
            value, at = int.from_bytes(data[at : at + size], "little"), at + size
        elif tag & 7 == 2:
            size, at = read_varint(data, at, what=what)
            value, at = data[at : at + size], at + size
        else:
            raise _broken(what, f"a field of wire type {tag & 7}")
        if at > len(data):
            raise _broken(what, "an entry that is cut off")
        found.setdefault(tag >> 3, []).append(value)
    return found


def _number(fields: Mapping[int, list[int | bytes]], field: int, what: str) -> int:
    values = fields.get(field, [0])
    # Protocol buffers store a negative number as 64 bits with the highest one set.
    if len(values) != 1 or not isinstance(values[0], int) or values[0] >> 63:
        raise _broken(what, f"field {field} that is not a number")
    return values[0]


def _bytes(value: int | bytes, what: str) -> bytes:
    if not isinstance(value, bytes):
        raise _broken(what, "a shape that is not a message")
    return value


def _broken(what: str, problem: str) -> FormatError:
    return FormatError(f"'{what}' has {problem}; it is damaged, copy the checkpoint again")


def checkpoint_step(prefix: str) -> int:
    """The N of `model.ckpt-N`, -1 without one."""
    match = re.search(r"-(\d{1,18})$", prefix)
    return int(match[1]) if match else -1

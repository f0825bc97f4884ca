"""Files of `torch.save` as arrays, read without torch and without running anything in them.

Both containers are read: the zip of torch >= 1.6, whose members have CRC-32 checksums, and the
older sequence of pickles followed by raw numbers, which has none.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.errors import FormatError
from elmore.formats.containers.archives import ZipSource
from elmore.formats.containers.finite import check_finite, finite_float32
from elmore.formats.containers.pickles import (
    TYPE_NAMES,
    NumpyArray,
    Storage,
    Tensor,
    item_size,
    read_storage,
    unpickle,
)
from elmore.formats.containers.sources import Source

__all__ = ["StateDict", "Tensor", "read_array", "read_state_dict"]

# The first two pickles of the older container.
_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001


# Gives the bytes of a storage, by its key and size. It keeps the file open while it lives.
_Numbers = Callable[[str, int], bytes]


class StateDict:
    """The tensors of a file by name, read on request. Made by `read_state_dict`."""

    def __init__(self, tensors: Mapping[str, Tensor], numbers: _Numbers, what: str) -> None:
        self.tensors = dict(tensors)
        self._numbers = numbers
        self._what = what
        self._last: tuple[str, bytes] | None = None  # tensors may share a storage

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each tensor."""
        return {name: tensor.shape for name, tensor in self.tensors.items()}

    def read(self, name: str) -> NDArray[np.float32]:
        """Read a tensor as float32; it must hold finite floats."""
        tensor = self.tensors[name]
        kind = tensor.storage.kind
        if kind not in TYPE_NAMES and kind != "bfloat16":
            raise FormatError(
                f"'{self._what}': {shown(name, 60)} has {tensor.type_name}, expected floats; "
                "convert it to float32"
            )
        values = _array(tensor, self._storage(tensor.storage))
        return np.array(finite_float32(values, what=self._what, name=name))  # not of the bytes

    def _storage(self, storage: Storage) -> bytes:
        if self._last is None or self._last[0] != storage.key:
            self._last = None  # frees the old bytes before the new ones are read
            size = storage.count * item_size(storage.kind)
            self._last = (storage.key, self._numbers(storage.key, size))
        return self._last[1]


def read_state_dict(source: Source, name: str) -> StateDict:
    """Read the names and shapes of a state dict; the tensors are read on request.

    Raises:
        FormatError: broken, hostile, or not a dictionary of tensors.
    """
    value, numbers = _open(source, name)
    if not isinstance(value, dict):
        raise FormatError(
            f"'{name}' holds a {_type_name(value)}, expected a dictionary of tensors; pass the "
            "weights of a model"
        )
    tensors = {k: v for k, v in value.items() if isinstance(k, str) and isinstance(v, Tensor)}
    if not tensors:
        raise FormatError(f"'{name}' has no tensors by name; pass the weights of a model")
    return StateDict(tensors, numbers, name)


def read_array(source: Source, name: str) -> NDArray[np.float64]:
    """Read a file that holds one tensor or numpy array, such as an alignment matrix."""
    value, numbers = _open(source, name)
    if isinstance(value, Tensor):
        array: Any = StateDict({"tensor": value}, numbers, name).read("tensor")
    elif isinstance(value, NumpyArray) and value.values is not None:
        array = value.values
        check_finite(array, what=name, name="array")
    else:
        raise FormatError(
            f"'{name}' holds a {_type_name(value)}, expected one tensor or array; check the file"
        )
    return np.array(array, np.float64)


def _type_name(value: Any) -> str:
    return type(value).__name__.strip("_")


# Containers ---------------------------------------------------------------------------------------


def _open(source: Source, name: str) -> tuple[Any, _Numbers]:
    stream = source.open(name)
    try:
        head = stream.read(4)
        stream.seek(0)
        value, numbers = (_open_zip if head == b"PK\x03\x04" else _open_row)(stream, name)
    except BaseException:
        stream.close()
        raise
    # Tensors are read on request, so the file stays open as long as somebody may ask for one.
    weakref.finalize(numbers, stream.close)
    return value, numbers


def _open_zip(stream: BinaryIO, what: str) -> tuple[Any, _Numbers]:
    """`NAME/data.pkl` and `NAME/data/KEY` in a zip."""
    zipped = ZipSource(what, stream=stream)
    if "byteorder" in zipped.names() and zipped.read("byteorder", 16) != b"little":
        raise FormatError(f"'{what}' has big-endian numbers; save it on a little-endian machine")
    sizes = {name: zipped.size(name) for name in zipped.names()}

    def persistent(key: Any) -> Storage:
        storage = read_storage(key, what)
        if sizes.get(storage.key) != storage.count * item_size(storage.kind):
            raise FormatError(
                f"'{what}': storage {shown(storage.key, 40)} has {sizes.get(storage.key)} bytes, "
                f"declared are {storage.count} numbers; copy the file again"
            )
        return storage

    with zipped.open("data.pkl") as pickle:
        value = unpickle(pickle, what=what, persistent=persistent)
        if pickle.read(1):
            raise FormatError(f"'{what}' has bytes after its pickle; copy the file again")

    def numbers(key: str, size: int) -> bytes:
        data = zipped.read(key, size)
        if len(data) != size:
            raise FormatError(f"'{what}': storage {shown(key, 40)} is too short; copy it again")
        return data

    return value, numbers


def _open_row(stream: BinaryIO, what: str) -> tuple[Any, _Numbers]:
    """torch's older container: magic number, version, machine, value, keys, then the numbers."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)

    def plain() -> Any:
        return unpickle(stream, what=what)

    if plain() != _MAGIC:
        raise FormatError(f"'{what}' was not written by torch.save; pass the weights of a model")
    if plain() != _VERSION:
        raise FormatError(
            f"'{what}' has an unknown version of torch.save; save it with a newer torch"
        )
    machine = plain()
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise FormatError(f"'{what}' has big-endian numbers; save it on a little-endian machine")
    storages: dict[str, Storage] = {}

    def persistent(key: Any) -> Storage:
        storage = read_storage(key, what)
        if storages.setdefault(storage.key, storage) != storage:
            raise FormatError(
                f"'{what}' describes storage {shown(storage.key, 40)} in two ways; get another copy"
            )
        return storage

    value = unpickle(stream, what=what, persistent=persistent)
    keys = plain()
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise FormatError(f"'{what}' has no list of storages; copy it again")
    # The numbers follow in the order of this list: with one more or less all offsets would be
    # wrong.
    if sorted(keys) != sorted(storages):
        raise FormatError(f"'{what}' lists other storages than it uses; copy it again")
    places: dict[str, int] = {}
    at = stream.tell()
    for key in keys:
        storage = storages[key]
        stream.seek(at)
        if int.from_bytes(stream.read(8), "little", signed=True) != storage.count:
            raise FormatError(f"'{what}': storage {shown(key, 40)} has another size; copy it again")
        places[key] = at + 8
        at += 8 + storage.count * item_size(storage.kind)
    if at != size:
        raise FormatError(f"'{what}' has {size} bytes, its tensors need {at}; copy it again")

    def numbers(key: str, size: int) -> bytes:
        stream.seek(places[key])
        data = stream.read(size)
        if len(data) != size:
            raise FormatError(f"'{what}' ends too early; copy it again")
        return data

    return value, numbers


def _array(tensor: Tensor, data: bytes) -> NDArray[Any]:
    kind = tensor.storage.kind
    if kind == "bfloat16":  # the upper half of a float32
        flat: NDArray[Any] = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        flat = np.frombuffer(data, kind)
    if not math.prod(tensor.shape):
        return np.zeros(tensor.shape, flat.dtype)
    strides = tuple(step * flat.itemsize for step in tensor.strides)
    # Within bounds: the unpickler compared the last element with the storage.
    return np.lib.stride_tricks.as_strided(
        flat[tensor.offset :], tensor.shape, strides, writeable=False
    )

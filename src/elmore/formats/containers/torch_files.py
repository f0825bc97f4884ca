"""Files of `torch.save` as arrays, read without torch and without running anything in them.

Both containers are read: the zip of torch >= 1.6, whose members have CRC-32 checksums, and the
older sequence of pickles followed by raw numbers, which has none.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.errors import FormatError
from elmore.formats.containers.archives import zip_source
from elmore.formats.containers.arrays import Arrays, check_finite, from_bytes
from elmore.formats.containers.pickles import NumpyArray, Storage, Tensor, read_storage, unpickle
from elmore.formats.containers.sources import Source
from elmore.limits import LIMITS

# The first two pickles of the older container.
_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001

# Gives the bytes of a storage.
_Numbers = Callable[[Storage], bytes]


def read_state_dict(source: Source, name: str) -> Arrays:
    """Read the names and shapes of a state dict; the tensors are read on request.

    Raises:
        FormatError: broken, hostile, or not a dictionary of tensors.
    """
    stream = source.open(name)
    try:
        value, numbers = _open(stream, name)
        if not isinstance(value, dict):
            raise FormatError(
                f"'{name}' holds a {_type_name(value)}, expected a dictionary of tensors; pass the "
                "weights of a model"
            )
        tensors = {k: v for k, v in value.items() if isinstance(k, str) and isinstance(v, Tensor)}
        if not tensors:
            raise FormatError(f"'{name}' has no tensors by name; pass the weights of a model")
    except BaseException:
        stream.close()
        raise
    return Arrays(
        name,
        {key: tensor.shape for key, tensor in tensors.items()},
        {key: tensor.storage.kind for key, tensor in tensors.items()},
        lambda key: _array(tensors[key], numbers),
        stream.close,
    )


def read_array(source: Source, name: str) -> NDArray[np.float64]:
    """Read a file that holds one tensor or numpy array, such as an alignment matrix."""
    with source.open(name) as stream:
        value, numbers = _open(stream, name)
        if isinstance(value, Tensor):
            array = _array(value, numbers)
        elif isinstance(value, NumpyArray) and value.values is not None:
            array = value.values
        else:
            raise FormatError(
                f"'{name}' holds a {_type_name(value)}, expected one tensor or array; check it"
            )
        check_finite(array, what=f"'{name}'", name="array")
        return np.array(array, np.float64)


def _type_name(value: Any) -> str:
    return type(value).__name__.strip("_")


# Containers ---------------------------------------------------------------------------------------


def _open(stream: BinaryIO, what: str) -> tuple[Any, _Numbers]:
    head = stream.read(4)
    stream.seek(0)
    return (_open_zip if head == b"PK\x03\x04" else _open_row)(stream, what)


def _open_zip(stream: BinaryIO, what: str) -> tuple[Any, _Numbers]:
    """`NAME/data.pkl` and `NAME/data/KEY` in a zip."""
    zipped = zip_source(stream, what)
    if "byteorder" in zipped.names() and zipped.read("byteorder", 16) != b"little":
        raise FormatError(f"'{what}' has big-endian numbers; save it on a little-endian machine")

    def persistent(key: Any) -> Storage:
        storage = read_storage(key, what)
        if zipped.size(storage.key) != storage.size:
            raise FormatError(
                f"'{what}': storage {shown(storage.key, 40)} has {zipped.size(storage.key)} bytes, "
                f"declared are {storage.count} numbers; copy the file again"
            )
        return storage

    pickle = io.BytesIO(zipped.read("data.pkl", LIMITS.pickle_bytes))
    value = unpickle(pickle, what=what, persistent=persistent)
    if pickle.read(1):
        raise FormatError(f"'{what}' has bytes after its pickle; copy the file again")
    return value, lambda storage: zipped.read(storage.key, storage.size)


def _open_row(stream: BinaryIO, what: str) -> tuple[Any, _Numbers]:
    """torch's older container: magic number, version, machine, value, keys, then the numbers."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    pickles = io.BytesIO(stream.read(LIMITS.pickle_bytes))

    def plain() -> Any:
        return unpickle(pickles, what=what)

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

    value = unpickle(pickles, what=what, persistent=persistent)
    keys = plain()
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise FormatError(f"'{what}' has no list of storages; copy it again")
    # The numbers follow in the order of this list: with one more or less all offsets would be
    # wrong.
    if sorted(keys) != sorted(storages):
        raise FormatError(f"'{what}' lists other storages than it uses; copy it again")
    places: dict[str, int] = {}
    at = pickles.tell()
    for key in keys:
        storage = storages[key]
        stream.seek(at)
        if int.from_bytes(stream.read(8), "little", signed=True) != storage.count:
            raise FormatError(f"'{what}': storage {shown(key, 40)} has another size; copy it again")
        places[key] = at + 8
        at += 8 + storage.size
    if at != size:
        raise FormatError(f"'{what}' has {size} bytes, its tensors need {at}; copy it again")

    def numbers(storage: Storage) -> bytes:
        stream.seek(places[storage.key])
        return stream.read(storage.size)

    return value, numbers


def _array(tensor: Tensor, numbers: _Numbers) -> NDArray[Any]:
    data, kind = numbers(tensor.storage), tensor.storage.kind
    if len(data) != tensor.storage.size:
        raise FormatError(f"storage {shown(tensor.storage.key, 40)} is too short; copy it again")
    flat = from_bytes(data, kind)
    if not math.prod(tensor.shape):
        return np.zeros(tensor.shape, flat.dtype)
    strides = tuple(step * flat.itemsize for step in tensor.strides)
    # Within bounds: the unpickler compared the last element with the storage.
    return np.array(
        np.lib.stride_tricks.as_strided(flat[tensor.offset :], tensor.shape, strides),
        order="C",
    )

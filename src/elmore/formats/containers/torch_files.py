"""Files of `torch.save` as arrays, read without torch and without running anything in them.

Both containers are read: the zip of torch >= 1.6, whose members have CRC-32 checksums, and the
older sequence of pickles followed by raw numbers, which has none.

The unpickler builds plain values and runs nothing that a file names. It is the standard library's
unpickler written in Python, reduced to the opcodes that a file of tensors needs. Overriding
`find_class` of the faster one in C is not enough. That one hashes keys before we see them, so
nested tuples hang or crash it; its BUILD sets attributes of our own functions; and it allocates a
table as long as the largest memo index.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.errors import FormatError
from elmore.formats.containers.arrays import Arrays, check_finite, from_bytes, item_size
from elmore.formats.containers.sources import Source, zip_source
from elmore.limits import LIMITS

# The first two pickles of the older container.
_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_STORAGES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
}


# What a pickle may name ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Storage:
    """A row of numbers in the file; `kind` is their type as numpy calls it."""

    key: str
    kind: str
    count: int

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.count * item_size(self.kind)


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor that was described and not yet read."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _StorageType:
    """Our stand-in for a storage class: the type of its numbers as numpy calls it."""

    kind: str


class _NumpyType:
    """A numpy type: only plain numbers."""

    def __init__(self, text: Any, *_: Any) -> None:
        # Little-endian only, and no objects, whose bytes would be pointers.
        if not isinstance(text, str) or text.lstrip("<=|") not in ("f2", "f4", "f8", "i4", "i8"):
            raise ValueError("it has arrays of another type than plain numbers")
        self.dtype = np.dtype("<" + text.lstrip("<=|"))

    def set_state(self, state: Any) -> None:
        if len(state) < 2 or state[1] not in ("<", "|", "="):
            raise ValueError("it has arrays of another byte order")


class _NumpyArray:
    """A numpy array; BUILD gives it its values."""

    def __init__(self, *_: Any) -> None:
        self.values: NDArray[Any] | None = None

    def set_state(self, state: Any) -> None:
        """Take (version, shape, type, whether in Fortran order, bytes)."""
        _, shape, kind, fortran, data = state
        fine = isinstance(shape, tuple) and len(shape) <= 8
        if not fine or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError("it has an array of invalid shape")
        if not isinstance(kind, _NumpyType):
            raise ValueError("it has an array without a type")
        if isinstance(data, str):
            data = data.encode("latin-1")
        if not isinstance(data, bytes) or len(data) != math.prod(shape) * kind.dtype.itemsize:
            raise ValueError("it has an array whose values do not fit its shape")
        flat: NDArray[Any] = np.frombuffer(data, kind.dtype)
        self.values = flat.reshape(shape[::-1]).T if fortran is True else flat.reshape(shape)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    if len(shape) != len(strides) or len(shape) > 8:
        raise ValueError("it has a tensor whose shape and strides do not fit")
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, _Storage) or not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError("it has a tensor of invalid sizes")
    # Strides of zero would let a few numbers fill any memory.
    if math.prod(shape) > storage.count:
        raise ValueError(f"it has a tensor of shape {tuple(shape)} over {storage.count} numbers")
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if math.prod(shape) and last >= storage.count:
        raise ValueError("it has a tensor that reaches beyond its storage")
    # No module saves elements that share a number; a damaged stride makes them.
    reach = 1
    for step, n in sorted((step, n) for n, step in zip(shape, strides, strict=True) if n > 1):
        if step < reach:
            raise ValueError("it has a tensor whose elements overlap")
        reach += (n - 1) * step
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _ordered_dict(items: Any = ()) -> dict[Any, Any]:
    fine = isinstance(items, list | tuple) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)
        for pair in items
    )
    if not fine:
        raise ValueError("it has a dictionary of other than names and values")
    return dict(items)


def _encode(text: Any, encoding: Any = "latin-1") -> bytes:
    """Bytes as Python 3 writes them for Python 2."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise ValueError("it has bytes of another encoding")
    return text.encode("latin-1")


# All that a file of tensors needs. Nothing of torch or numpy is called: each name leads to a
# function of ours that only checks and stores. Nothing else on the unpickler's stack is callable.
_NAMES: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _ordered_dict,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
    **{("torch", f"{name}Storage"): _StorageType(kind) for name, kind in _STORAGES.items()},
    ("numpy.core.multiarray", "_reconstruct"): _NumpyArray,
    ("numpy._core.multiarray", "_reconstruct"): _NumpyArray,
    ("numpy", "ndarray"): _NumpyArray,
    ("numpy", "dtype"): _NumpyType,
    ("_codecs", "encode"): _encode,
}


def _read_storage(key: Any, what: str) -> _Storage:
    """Read a persistent id: ("storage", type, key, device, count)."""
    fine = (
        isinstance(key, tuple)
        and len(key) in (5, 6)
        and key[0] == "storage"
        and isinstance(key[1], _StorageType)
        and isinstance(key[2], str)
        and type(key[4]) is int
        and 0 <= key[4] <= LIMITS.model_bytes
        and (len(key) == 5 or key[5] is None)
    )
    if not fine:
        raise FormatError(f"'{what}' refers to something that is not a storage; get another copy")
    return _Storage(key[2], key[1].kind, key[4])


# The unpickler ------------------------------------------------------------------------------------

_ITEM_BYTES = 128  # at least what an entry of a dictionary takes
# Taken over as they are: they push plain values, build lists and tuples, and use the memo.
_OPCODES = [
    getattr(pickle, name)[0]
    for name in (
        "PROTO FRAME STOP MARK GLOBAL STACK_GLOBAL BINPERSID BINPUT LONG_BINPUT MEMOIZE BINGET "
        "LONG_BINGET NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE "
        "SHORT_BINUNICODE BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES EMPTY_DICT EMPTY_LIST "
        "APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3"
    ).split()
]


def _unpickle(
    stream: BinaryIO, *, what: str, persistent: Callable[[Any], Any] | None = None
) -> Any:
    """Read one pickle from the position of a stream.

    Args:
        stream: bytes in memory; afterwards it is at the end of the pickle.
        what: the file for messages.
        persistent: turns persistent ids into values; None refuses them.

    Raises:
        FormatError: broken, too large, or asking for anything that is not a plain value.
    """
    try:
        return _TensorUnpickler(stream, persistent).load()
    except EOFError:
        reason = "it ends in the middle of a pickle"
    except (pickle.UnpicklingError, ValueError) as error:
        reason = shown(error, 90)
    except (IndexError, TypeError, AttributeError, OverflowError, struct.error):
        reason = "its values do not fit its instructions"
    except KeyError as error:  # of the table of opcodes
        reason = f"the opcode {error.args[0]:#04x} is not allowed"
    raise FormatError(f"'{what}' is not a valid file of tensors: {reason}; get another copy")


class _TensorUnpickler(pickle._Unpickler):
    """The Python unpickler with fewer opcodes; those that call, set or hash something are ours."""

    # Of the base class, which has no types for them.
    stack: list[Any]
    metastack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, stream: BinaryIO, persistent: Callable[[Any], Any] | None) -> None:
        # Strings of Python 2 hold bytes; those of array data come back by latin-1.
        super().__init__(stream, encoding="latin-1")
        self._persistent = persistent
        self._copied = 0

    def load(self) -> Any:
        value = super().load()
        if self.stack or self.metastack:
            raise pickle.UnpicklingError("it ends with more than one value")
        return value

    def find_class(self, module: str, name: str) -> Any:
        found = _NAMES.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(
                f"it names {shown(f'{module}.{name}', 50)}, which is not allowed"
            )
        return found

    def persistent_load(self, pid: Any) -> Any:
        if self._persistent is None:
            raise pickle.UnpicklingError("it refers to something outside the file")
        return self._persistent(pid)

    def _reduce(self) -> None:
        arguments, name = self.stack.pop(), self.stack[-1]
        if not callable(name) or not isinstance(arguments, tuple):
            raise pickle.UnpicklingError("it calls something that is not a name")
        self._count_copies(arguments)
        self.stack[-1] = name(*arguments)

    def _build(self) -> None:
        state, value = self.stack.pop(), self.stack[-1]
        if isinstance(value, _NumpyArray | _NumpyType) and isinstance(state, tuple):
            self._count_copies(state)
            value.set_state(state)
        elif not isinstance(value, dict):  # attributes of a state dict (_metadata) do not matter
            raise pickle.UnpicklingError("it sets the state of a value that has none")

    def _count_copies(self, values: tuple[Any, ...]) -> None:
        # A short file can hand the same large value to a name many times, which copies it.
        for value in values:
            if isinstance(value, str | list | tuple):
                self._copied += len(value) * (1 if isinstance(value, str) else _ITEM_BYTES)
        if self._copied > LIMITS.pickle_bytes:
            raise pickle.UnpicklingError("it describes its tensors at greater length than allowed")

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key, value])

    def _set_items(self) -> None:
        self._fill(self.pop_mark())

    def _fill(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if len(items) % 2:
            raise pickle.UnpicklingError("it has a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Hashing tuples within tuples can take for ever, or overflow C's stack. Numbers can be
            # chosen to have the same hash, which makes a dictionary slow.
            if not isinstance(target, dict) or not isinstance(key, str):
                raise pickle.UnpicklingError(f"it has a key of type {type(key).__name__}")
            target[key] = value

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **{code: pickle._Unpickler.dispatch[code] for code in _OPCODES},
        pickle.REDUCE[0]: _reduce,
        pickle.BUILD[0]: _build,
        pickle.SETITEM[0]: _set_item,
        pickle.SETITEMS[0]: _set_items,
    }


# Files --------------------------------------------------------------------------------------------

# Gives the bytes of a storage.
_Numbers = Callable[[_Storage], bytes]


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
        tensors = {k: v for k, v in value.items() if isinstance(k, str) and isinstance(v, _Tensor)}
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
        if isinstance(value, _Tensor):
            array = _array(value, numbers)
        elif isinstance(value, _NumpyArray) and value.values is not None:
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
    if "byteorder" in zipped.names and zipped.read("byteorder", 16) != b"little":
        raise FormatError(f"'{what}' has big-endian numbers; save it on a little-endian machine")

    def persistent(key: Any) -> _Storage:
        storage = _read_storage(key, what)
        if zipped.size(storage.key) != storage.size:
            raise FormatError(
                f"'{what}': storage {shown(storage.key, 40)} has {zipped.size(storage.key)} bytes, "
                f"declared are {storage.count} numbers; copy the file again"
            )
        return storage

    pickle = io.BytesIO(zipped.read("data.pkl", LIMITS.pickle_bytes))
    value = _unpickle(pickle, what=what, persistent=persistent)
    if pickle.read(1):
        raise FormatError(f"'{what}' has bytes after its pickle; copy the file again")
    return value, lambda storage: zipped.read(storage.key, storage.size)


def _open_row(stream: BinaryIO, what: str) -> tuple[Any, _Numbers]:
    """torch's older container: magic number, version, machine, value, keys, then the numbers."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    pickles = io.BytesIO(stream.read(LIMITS.pickle_bytes))

    def plain() -> Any:
        return _unpickle(pickles, what=what)

    if plain() != _MAGIC:
        raise FormatError(f"'{what}' was not written by torch.save; pass the weights of a model")
    if plain() != _VERSION:
        raise FormatError(
            f"'{what}' has an unknown version of torch.save; save it with a newer torch"
        )
    machine = plain()
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise FormatError(f"'{what}' has big-endian numbers; save it on a little-endian machine")
    storages: dict[str, _Storage] = {}

    def persistent(key: Any) -> _Storage:
        storage = _read_storage(key, what)
        if storages.setdefault(storage.key, storage) != storage:
            raise FormatError(
                f"'{what}' describes storage {shown(storage.key, 40)} in two ways; get another copy"
            )
        return storage

    value = _unpickle(pickles, what=what, persistent=persistent)
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

    def numbers(storage: _Storage) -> bytes:
        stream.seek(places[storage.key])
        return stream.read(storage.size)

    return value, numbers


def _array(tensor: _Tensor, numbers: _Numbers) -> NDArray[Any]:
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

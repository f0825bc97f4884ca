"""All that a file of torch.save may name: tensors, storages, dictionaries and numpy arrays.

Each name leads to a small maker of our own; nothing of torch or numpy is called by a file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.errors import FormatError
from elmore.formats.files.pickle_machine import Names
from elmore.limits import LIMITS

__all__ = ["NAMES", "TYPE_NAMES", "NumpyArray", "Storage", "Tensor", "item_size", "read_storage"]

_STORAGES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "|b1",
}
TYPE_NAMES = {"<f4": "float32", "<f8": "float64", "<f2": "float16"}


@dataclass(frozen=True, slots=True)
class Storage:
    """A row of numbers in the file."""

    key: str
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that was described and not yet read."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def type_name(self) -> str:
        """The type as numpy calls it."""
        return TYPE_NAMES.get(self.storage.kind, self.storage.kind.strip("<|"))


def read_storage(key: Any, what: str) -> Storage:
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
        raise FormatError(f"'{what}' refers to something that is no storage; get another copy")
    return Storage(key[2], key[1].kind, key[4])


class _StorageType:
    """Stands for a class of torch's; it makes nothing."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, *arguments: Any) -> Any:
        raise ValueError("a storage must be referred to, not built")


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
    if len(shape) != len(strides) or len(shape) > 8:
        raise ValueError("shape and strides that do not fit")
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, Storage) or not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError("a tensor of odd sizes")
    # Strides of zero would let a few numbers fill any memory.
    if math.prod(shape) > storage.count:
        raise ValueError(f"a tensor of shape {tuple(shape)} over {storage.count} numbers")
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if math.prod(shape) and last >= storage.count:
        raise ValueError("a tensor that reaches over its storage")
    # No module saves elements that share a number; a damaged stride makes them.
    reach = 1
    for step, n in sorted((step, n) for n, step in zip(shape, strides, strict=True) if n > 1):
        if step < reach:
            raise ValueError("a tensor whose elements overlap")
        reach += (n - 1) * step
    return Tensor(storage, offset, tuple(shape), tuple(strides))


def _parameter(data: Any, *_: Any) -> Tensor:
    if not isinstance(data, Tensor):
        raise ValueError("a parameter without a tensor")
    return data


def _ordered_dict(items: Any = ()) -> dict[Any, Any]:
    pairs = list(items)
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError("a dictionary of other than names and values")
    return dict(pairs)


class _NumpyType:
    """A numpy type: only plain numbers."""

    def __init__(self, text: Any, *_: Any) -> None:
        if not isinstance(text, str) or text.lstrip("<=|") not in ("f2", "f4", "f8", "i4", "i8"):
            raise ValueError("arrays of another type than plain numbers")
        self.dtype = np.dtype("<" + text.lstrip("<=|"))

    def set_pickled_state(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", "|", "="):
            raise ValueError("arrays of another byte order")


class NumpyArray:
    """A numpy array that gets its values by BUILD."""

    def __init__(self, *_: Any) -> None:
        self.values: NDArray[Any] | None = None

    def set_pickled_state(self, state: Any) -> None:
        _, shape, kind, fortran, data = state
        fine = isinstance(shape, tuple) and len(shape) <= 8
        if not fine or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError("an array of odd shape")
        if not isinstance(kind, _NumpyType):
            raise ValueError("an array without a type")
        if isinstance(data, str):
            data = data.encode("latin-1")
        if not isinstance(data, bytes) or len(data) != math.prod(shape) * kind.dtype.itemsize:
            raise ValueError("an array whose values do not fit its shape")
        flat: NDArray[Any] = np.frombuffer(data, kind.dtype)
        self.values = flat.reshape(shape[::-1]).T if fortran is True else flat.reshape(shape)


def _encode(text: Any, encoding: Any = "latin-1") -> bytes:
    """Bytes as Python 3 writes them for Python 2."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise ValueError("bytes of another encoding")
    return text.encode("latin-1")


NAMES: Names = {
    ("collections", "OrderedDict"): _ordered_dict,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    **{("torch", name): _StorageType(kind) for name, kind in _STORAGES.items()},
    **{(f"numpy.{core}.multiarray", "_reconstruct"): NumpyArray for core in ("core", "_core")},
    ("numpy", "ndarray"): NumpyArray,
    ("numpy", "dtype"): _NumpyType,
    ("_codecs", "encode"): _encode,
}


def item_size(kind: str) -> int:
    return 2 if kind == "bfloat16" else np.dtype(kind).itemsize

"""Read and write safetensors files: a JSON header, then the raw tensors.

The header is checked in full before any data is read: each name once, sizes multiplied without
overflow, tensors next to each other from byte 0 to the end of the file. The `safetensors` library
would copy each tensor for numpy, while here processes share one map of the file; tests compare the
two.
"""

from __future__ import annotations

import json
import math
import os
import struct
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from elmore.base.io import open_checked
from elmore.base.json import parse_json
from elmore.base.messages import shown
from elmore.errors import ConfigError, FormatError
from elmore.formats.containers.finite import check_finite
from elmore.limits import LIMITS

__all__ = ["SafetensorsView", "TensorInfo", "header_bytes", "read_safetensors", "write_safetensors"]

# Bytes of one value, for every type of the format whose values fill whole bytes.
_SIZES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64"), 8),
}
# What we read and write; little-endian, as the format demands.
_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "|i1", "I32": "<i4", "I64": "<i8"}
_CODES = {np.dtype(text): code for code, text in _DTYPES.items()}


@dataclass(frozen=True)
class TensorInfo:
    """Type, shape and place of a tensor; `begin` and `end` count from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsView:
    """A checked safetensors file; tensors are read on request, and outlive the view.

    Made by `read_safetensors`.
    """

    def __init__(self, stream: BinaryIO, what: str, *, owned: bool) -> None:
        self._stream = stream
        self._what = what
        self._owned = owned  # opened here by path: it may be mapped, and is closed here
        self._size = stream.seek(0, os.SEEK_END)
        header, self._start = _read_header(stream, self._size, what)
        self.metadata: Mapping[str, str] = _metadata(header, what)
        self._tensors = {name: _tensor(name, value, what) for name, value in header.items()}
        _check_cover(self._tensors, self._size - self._start, what)
        self._map: NDArray[np.uint8] | None = None
        self._lock = threading.Lock()  # of the stream, which a seek and a read share
        if owned:
            weakref.finalize(self, stream.close)  # lazy readers forget to close

    def names(self) -> dict[str, TensorInfo]:
        """Every tensor by name, without reading it."""
        return dict(self._tensors)

    def read(self, name: str, *, copy: bool = False, check: bool = True) -> NDArray[Any]:
        """Read a tensor in its own type; NaN and infinite values are refused.

        Args:
            name: one of `names()`.
            copy: return writable memory of its own. Otherwise a local file is mapped: the
                array is read-only and shares its memory with other processes.
            check: look for NaN and infinite values, which reads all of it.
        """
        tensor = self._tensors.get(name)
        label = f"'{shown(name, 80)}'"
        if tensor is None:
            raise FormatError(f"{self._what} has no tensor {label}; check that it fits its config")
        if tensor.dtype not in _DTYPES:
            raise FormatError(
                f"{self._what} has {label} of type {tensor.dtype}, readable are "
                f"{', '.join(_DTYPES)}; convert it"
            )
        dtype = np.dtype(_DTYPES[tensor.dtype])
        with self._lock:
            array = self._array(tensor, dtype, copy=copy)
        if check:
            check_finite(array, what=self._what, name=name)
        return array

    def _array(self, tensor: TensorInfo, dtype: np.dtype[Any], *, copy: bool) -> NDArray[Any]:
        self._check_size()
        array: NDArray[Any]
        if self._owned and not copy and tensor.end > tensor.begin:
            # Pages are read when a number is used, and the processes of a machine share them.
            values = self._mapped()[tensor.begin : tensor.end]
            if (self._start + tensor.begin) % dtype.itemsize:
                values = values.copy()  # other writers need not align
            array = values.view(dtype).reshape(tensor.shape)
        else:
            array = np.empty(tensor.shape, dtype)
            self._fill(array, tensor)
        return array

    def _check_size(self) -> None:
        """Notice a file that shrank: touching its lost pages would end the process (SIGBUS)."""
        position = self._stream.seek(0, os.SEEK_END)
        if position != self._size:
            raise FormatError(
                f"{self._what} had {self._size} bytes and now has {position}; "
                "restore it and load the model again"
            )

    def _mapped(self) -> NDArray[np.uint8]:
        if self._map is None:
            mapped = np.memmap(self._stream, np.uint8, "r", offset=0, shape=(self._size,))
            self._map = np.asarray(mapped)[self._start :]
        return self._map

    def _fill(self, array: NDArray[Any], tensor: TensorInfo) -> None:
        self._stream.seek(self._start + tensor.begin)
        left = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
        while left:
            count = self._stream.readinto(left)  # type: ignore[attr-defined] # all binary files
            if not count:
                raise FormatError(f"{self._what} ends too early; restore or download it again")
            left = left[count:]

    def close(self) -> None:
        """Close the file if it was opened here."""
        self._map = None
        if self._owned:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def read_safetensors(source: BinaryIO | Path, *, what: str) -> SafetensorsView:
    """Open a safetensors file and check its complete header.

    Args:
        source: a path, or a seekable stream, which stays open.
        what: the file for messages.

    Raises:
        FormatError: the header is too large, broken, or does not cover the file exactly.
    """
    what = shown(what, 100)
    if not isinstance(source, (str, os.PathLike)):
        return SafetensorsView(source, what, owned=False)
    stream = open_checked(Path(source), what="safetensors file")
    try:
        return SafetensorsView(stream, what, owned=True)
    except BaseException:
        stream.close()
        raise


def _read_header(stream: BinaryIO, size: int, what: str) -> tuple[dict[str, Any], int]:
    """Read the JSON of the header; return it with the number of bytes before the data."""
    stream.seek(0)
    prefix = stream.read(8)
    length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else -1
    if length < 2 or length > size - 8:
        raise FormatError(
            f"{what} is not a complete safetensors file: {size} bytes with a header of {length}; "
            "check the file or download it again"
        )
    max_bytes = LIMITS.safetensors_header_bytes
    if length > max_bytes:
        raise FormatError(
            f"{what} has a header of {length} bytes, allowed are {max_bytes}; "
            "check that it is the right file"
        )
    data = stream.read(length)
    if not data.startswith(b"{"):
        raise FormatError(f"{what} has a header that does not start with '{{'; download it again")
    # A header has three levels; the nodes and integers keep their usual limits.
    bounded = replace(LIMITS, json_bytes=max_bytes, json_depth=4)
    return parse_json(data, what=f"header of {what}", limits=bounded), 8 + length


def _metadata(header: dict[str, Any], what: str) -> dict[str, str]:
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FormatError(f"{what} has __metadata__ that is not text to text; download it again")
    return metadata


def _tensor(name: str, entry: object, what: str) -> TensorInfo:
    def refuse(problem: str) -> FormatError:
        return FormatError(f"{what} has tensor '{shown(name, 60)}' {problem}; download it again")

    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise refuse("without exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _SIZES:
        raise refuse(f"of unknown type {shown(dtype, 30)}")
    if not _are_counts(shape) or len(shape) > 32:
        raise refuse(f"of shape {shown(shape, 50)}")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise refuse(f"with data_offsets {shown(offsets, 50)}")
    begin, end = offsets
    expected = math.prod(shape) * _SIZES[dtype]
    if end - begin != expected:
        raise refuse(
            f"of {end - begin} bytes, shape {shown(shape, 40)} needs {shown(expected, 30)}"
        )
    return TensorInfo(dtype, tuple(shape), begin, end)


def _are_counts(values: object) -> bool:
    """Whether a JSON value is a list of counts; true and 1.0 are not counts."""
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _check_cover(tensors: Mapping[str, TensorInfo], size: int, what: str) -> None:
    """Require tensors next to each other that fill the file: no hole, overlap or tail."""
    place = 0
    # As the reference implementation demands: bytes that no tensor covers could hide another
    # file.
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != place:
            problem = "overlaps another" if tensor.begin < place else "leaves a hole before it"
            raise FormatError(
                f"{what} has tensor '{shown(name, 60)}' at byte {tensor.begin}, expected {place}: "
                f"it {problem}; download it again"
            )
        place = tensor.end
    if place != size:
        raise FormatError(
            f"{what} has {size} bytes of data, its header describes {place}; download it again"
        )


def write_safetensors(
    stream: BinaryIO, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
) -> None:
    """Write tensors one after the other, without a second copy of all in memory.

    The bytes depend on the arguments only, not on their order.

    Args:
        stream: where to write, usually from `atomic_file`.
        tensors: name → float16, float32, float64, int8, int32 or int64 array.
        metadata: text → text, kept in the header.
    """
    for name, array in tensors.items():
        if name == "__metadata__" or array.dtype.newbyteorder("<") not in _CODES:
            raise ConfigError(
                f"tensor '{shown(name, 60)}' of type {array.dtype} cannot be written; use one of "
                f"{', '.join(dtype.name for dtype in _CODES)} and another name than __metadata__"
            )
    # Wide types first, so that each tensor stays aligned; then by name.
    ordered = dict(sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])))
    described = {
        name: (_CODES[array.dtype.newbyteorder("<")], array.shape)
        for name, array in ordered.items()
    }
    stream.write(header_bytes(described, metadata))
    for array in ordered.values():
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        if plain.size:
            stream.write(plain.reshape(-1).view(np.uint8).data)


def header_bytes(
    tensors: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str]
) -> bytes:
    """Make the header, which comes before the tensors.

    Args:
        tensors: name → type, such as "F32", and shape, in the order of their data; wide types
            first, so that each stays aligned.
        metadata: text → text.
    """
    header: dict[str, Any] = {}
    if metadata:
        header["__metadata__"] = dict(sorted(metadata.items()))
    place = 0
    for name, (dtype, shape) in tensors.items():
        end = place + math.prod(shape) * _SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, end]}
        place = end
    data = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    data += b" " * (-len(data) % 8)  # the format aligns the tensors by spaces here
    return struct.pack("<Q", len(data)) + data

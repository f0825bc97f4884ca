"""Read and write safetensors files: a JSON header, then the raw tensors.

The header is checked in full before a byte of data is touched: names once, sizes multiplied
without overflow, tensors side by side from byte 0 to the end of the file.
"""

from __future__ import annotations

import json
import math
import os
import struct
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from elmore._io import open_checked
from elmore._json import parse_json
from elmore._messages import shown
from elmore.errors import ConfigError, FormatError
from elmore.formats.files.hdf5_files import check_finite
from elmore.limits import LIMITS, Limits

__all__ = ["SafetensorsView", "Tensor", "header_bytes", "read_safetensors", "write_safetensors"]

# Bytes of one value, for every type of the format whose values fill whole bytes.
_SIZES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E5M2": 1,
    "F8_E4M3": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "F64": 8,
    "I64": 8,
    "U64": 8,
}
# What we read and write; little-endian, as the format demands.
_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "|i1", "I32": "<i4", "I64": "<i8"}
_CODES = {np.dtype(text): code for code, text in _DTYPES.items()}


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies: `begin` and `end` count from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsView:
    """A checked safetensors file; tensors are read when asked for.

    Made by `read_safetensors`. Arrays outlive the view.
    """

    def __init__(
        self,
        stream: BinaryIO,
        *,
        what: str,
        size: int,
        start: int,
        tensors: dict[str, Tensor],
        metadata: dict[str, str],
        owned: bool,
    ) -> None:
        self._stream = stream
        self._what = what
        self._size = size
        self._start = start
        self._tensors = tensors
        self._owned = owned  # opened here by path: it may be mapped, and is closed here
        if owned:
            weakref.finalize(self, stream.close)  # readers that are lazy forget to close
        self._map: NDArray[np.uint8] | None = None
        self.metadata: Mapping[str, str] = metadata

    def names(self) -> dict[str, Tensor]:
        """Return every tensor by name, without reading it."""
        return dict(self._tensors)

    def read(self, name: str, *, copy: bool = False) -> NDArray[Any]:
        """Return a tensor in its own type, refusing NaN and infinite values.

        Args:
            name: one of `names()`.
            copy: return writable memory of its own. Otherwise a local file is mapped: the
                array is read-only and shares its memory with other processes.
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
        self._check_size()
        if self._owned and not copy and tensor.end > tensor.begin:
            values = self._mapped()[tensor.begin : tensor.end]
            if (self._start + tensor.begin) % dtype.itemsize:
                values = values.copy()  # foreign writers need not align
            array = values.view(dtype).reshape(tensor.shape)
        else:
            array = np.empty(tensor.shape, dtype)
            self._fill(array, tensor)
        check_finite(array, what=self._what, name=name)
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

    def _fill(self, array: NDArray[Any], tensor: Tensor) -> None:
        self._stream.seek(self._start + tensor.begin)
        left = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
        while left:
            count = self._stream.readinto(left)  # type: ignore[attr-defined] # all binary files
            if not count:
                raise FormatError(f"{self._what} ends too early; restore or download it again")
            left = left[count:]

    def close(self) -> None:
        """Let go of the file if it was opened here."""
        self._map = None
        if self._owned:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def read_safetensors(
    source: BinaryIO | Path, *, what: str, limits: Limits = LIMITS
) -> SafetensorsView:
    """Open a safetensors file and check its whole header.

    Args:
        source: a path, or a seekable stream, which stays open.
        what: the file for messages.
        limits: sizes allowed.

    Raises:
        FormatError: the header is too large, broken, or does not cover the file exactly.
    """
    what = shown(what, 100)
    owned = isinstance(source, (str, os.PathLike))
    if isinstance(source, (str, os.PathLike)):
        stream = open_checked(Path(source), what="safetensors file")
    else:
        stream = source
    try:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        header, start = _read_header(stream, size, what, limits)
        metadata = _metadata(header, what)
        tensors = {name: _tensor(name, value, what) for name, value in header.items()}
        _check_cover(tensors, size - start, what)
    except BaseException:
        if owned:
            stream.close()
        raise
    return SafetensorsView(
        stream,
        what=what,
        size=size,
        start=start,
        tensors=tensors,
        metadata=metadata,
        owned=owned,
    )


def _read_header(
    stream: BinaryIO, size: int, what: str, limits: Limits
) -> tuple[dict[str, Any], int]:
    prefix = stream.read(8)
    length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else -1
    most = limits.safetensors_header_bytes
    if length < 2 or length > size - 8:
        raise FormatError(
            f"{what} is not a whole safetensors file: {size} bytes with a header of {length}; "
            "check the file or download it again"
        )
    if length > most:
        raise FormatError(
            f"{what} has a header of {length} bytes, allowed are {most}; "
            "raise limits.safetensors_header_bytes if you trust it"
        )
    data = stream.read(length)
    if not data.startswith(b"{"):
        raise FormatError(f"{what} has a header that does not start with '{{'; download it again")
    bounded = replace(limits, json_bytes=most, json_depth=4)
    return parse_json(data, what=f"header of {what}", limits=bounded), 8 + length


def _metadata(header: dict[str, Any], what: str) -> dict[str, str]:
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FormatError(f"{what} has __metadata__ that is not text to text; download it again")
    return metadata


def _count(value: object) -> int | None:
    """Return a JSON value that is a count; true and 1.0 are none."""
    return value if type(value) is int and value >= 0 else None


def _counts(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    counts = tuple(count for count in map(_count, value) if count is not None)
    return counts if len(counts) == len(value) else None


def _tensor(name: str, entry: object, what: str) -> Tensor:
    def refuse(problem: str) -> FormatError:
        return FormatError(f"{what} has tensor '{shown(name, 60)}' {problem}; download it again")

    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise refuse("without exactly dtype, shape and data_offsets")
    dtype = entry["dtype"]
    if not isinstance(dtype, str) or dtype not in _SIZES:
        raise refuse(f"of unknown type {shown(dtype, 30)}")
    shape = _counts(entry["shape"])
    if shape is None or len(shape) > 32:
        raise refuse(f"of shape {shown(entry['shape'], 50)}")
    offsets = _counts(entry["data_offsets"])
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise refuse(f"with data_offsets {shown(entry['data_offsets'], 50)}")
    begin, end = offsets
    expected = math.prod(shape) * _SIZES[dtype]
    if end - begin != expected:
        raise refuse(
            f"of {end - begin} bytes, shape {shown(list(shape), 40)} needs {shown(expected, 30)}"
        )
    return Tensor(dtype, shape, begin, end)


def _check_cover(tensors: Mapping[str, Tensor], size: int, what: str) -> None:
    """Demand that tensors lie side by side and fill the file: no hole, overlap or tail."""
    place = 0
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
    names = _ordered(tensors)
    described = {
        name: (_CODES[tensors[name].dtype.newbyteorder("<")], tensors[name].shape) for name in names
    }
    stream.write(header_bytes(described, metadata))
    for name in names:
        array = tensors[name]
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        if plain.size:
            stream.write(plain.reshape(-1).view(np.uint8).data)


def header_bytes(
    tensors: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str]
) -> bytes:
    """Make what stands in front of the tensors.

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
    data += b" " * (-len(data) % 8)  # the format aligns the tensors by blanks here
    return struct.pack("<Q", len(data)) + data


def _ordered(tensors: Mapping[str, NDArray[Any]]) -> list[str]:
    """Put wide types first, so that each tensor stays aligned; then by name."""
    for name, array in tensors.items():
        if name == "__metadata__" or array.dtype.newbyteorder("<") not in _CODES:
            raise ConfigError(
                f"tensor '{shown(name, 60)}' of type {array.dtype} cannot be written; "
                f"use one of {', '.join(_names(_CODES))} and another name than __metadata__"
            )
    return sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))


def _names(dtypes: Iterable[np.dtype[Any]]) -> list[str]:
    return [dtype.name for dtype in dtypes]

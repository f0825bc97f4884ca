"""Read and write safetensors files with the safetensors library.

The library checks a header completely: known types, sizes that fit the shapes, tensors next to each
other up to the end of the file. What this module adds: one-line errors, a limit for headers, NaN
and infinite values refused, and arrays that are mapped instead of copied, so that the processes of
a machine share them.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize, safe_open
from safetensors.numpy import save_file

from elmore.base.io import open_checked
from elmore.base.messages import shown
from elmore.errors import ConfigError, ElmoreError, FormatError
from elmore.formats.containers.finite import check_finite
from elmore.limits import LIMITS

__all__ = ["SafetensorsView", "TensorInfo", "read_safetensors", "write_safetensors"]

# What we read and write; little-endian, as the format demands.
_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "|i1", "I32": "<i4", "I64": "<i8"}
_WRITABLE = {np.dtype(text) for text in _DTYPES.values()}


@dataclass(frozen=True)
class TensorInfo:
    """Type, such as "F32", and shape of a tensor."""

    dtype: str
    shape: tuple[int, ...]


class SafetensorsView:
    """A checked safetensors file; tensors are read on request, and outlive the view.

    Made by `read_safetensors`. Threads may read at the same time.
    """

    def __init__(
        self,
        what: str,
        tensors: Mapping[str, tuple[TensorInfo, NDArray[np.uint8]]],
        metadata: Mapping[str, str],
        stream: BinaryIO | None = None,
    ) -> None:
        self._what = what
        self._tensors = tensors
        self.metadata = metadata
        self._stream = stream  # of the file that is mapped
        if stream is not None:
            self._size = os.fstat(stream.fileno()).st_size
            weakref.finalize(self, stream.close)  # lazy readers forget to close

    def names(self) -> dict[str, TensorInfo]:
        """Every tensor by name, without reading it."""
        return {name: info for name, (info, _) in self._tensors.items()}

    def read(self, name: str) -> NDArray[Any]:
        """Read a tensor in its own type; NaN and infinite values are refused.

        A local file is mapped: the array is read-only, and the processes of a machine share it.
        """
        label = f"'{shown(name, 80)}'"
        if name not in self._tensors:
            raise FormatError(f"{self._what} has no tensor {label}; check that it fits its config")
        info, data = self._tensors[name]
        if len(info.shape) > 32:  # the most that every numpy takes
            raise FormatError(f"{self._what} has {label} of too many dimensions; convert it")
        if info.dtype not in _DTYPES:
            raise FormatError(
                f"{self._what} has {label} of type {info.dtype}, readable are "
                f"{', '.join(_DTYPES)}; convert it"
            )
        self._check_size()
        dtype = np.dtype(_DTYPES[info.dtype])
        if data.ctypes.data % dtype.itemsize:
            data = data.copy()  # other writers need not align
        array = data.view(dtype).reshape(info.shape)
        check_finite(array, what=self._what, name=name)
        return array

    def _check_size(self) -> None:
        """Notice a file that shrank: touching its lost pages would end the process (SIGBUS)."""
        if self._stream is None or self._stream.closed:
            return
        size = os.fstat(self._stream.fileno()).st_size
        if size != self._size:
            raise FormatError(
                f"{self._what} had {self._size} bytes and now has {size}; "
                "restore it and load the model again"
            )

    def close(self) -> None:
        """Close the file; arrays stay mapped."""
        if self._stream is not None:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def read_safetensors(source: BinaryIO | Path, *, what: str) -> SafetensorsView:
    """Open a safetensors file and check its complete header.

    Args:
        source: a path, whose tensors are mapped, or a stream, which is read into memory.
        what: the file for messages.

    Raises:
        FormatError: the header is too large, broken, or does not cover the file exactly.
    """
    what = shown(what, 100)
    if not isinstance(source, (str, os.PathLike)):
        return _from_stream(source, what)
    stream = open_checked(Path(source), what="safetensors file")
    try:
        return _from_path(Path(source), stream, what)
    except BaseException:
        stream.close()
        raise


def _from_path(path: Path, stream: BinaryIO, what: str) -> SafetensorsView:
    start = _data_start(stream, what)
    infos: dict[str, TensorInfo] = {}
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            for name in file.offset_keys():
                part = file.get_slice(name)
                infos[name] = TensorInfo(str(part.get_dtype()), tuple(part.get_shape()))
    except (SafetensorError, OSError, ValueError) as error:
        raise _broken(error, what) from None
    mapped: NDArray[np.uint8] = np.asarray(np.memmap(stream, np.uint8, "r"))
    # The library gives no offsets, but tensors in their order fill the file without a gap.
    tensors = {}
    for name, info in infos.items():
        end = start + math.prod(info.shape) * _bits(info.dtype) // 8
        tensors[name] = (info, mapped[start:end])
        start = end
    if start != len(mapped):
        raise FormatError(f"{what} changed while it was opened; open it again")
    return SafetensorsView(what, tensors, metadata, stream)


def _from_stream(stream: BinaryIO, what: str) -> SafetensorsView:
    _data_start(stream, what)
    stream.seek(0)
    try:
        found = deserialize(stream.read())  # type: ignore[no-untyped-call]  # the library is in Rust
    except (SafetensorError, ValueError) as error:
        raise _broken(error, what) from None
    tensors = {
        name: (TensorInfo(part["dtype"], tuple(part["shape"])), np.frombuffer(part["data"], "u1"))
        for name, part in found
    }
    return SafetensorsView(what, tensors, {})


def _data_start(stream: BinaryIO, what: str) -> int:
    """The number of bytes before the tensors; refuses a header that is too large."""
    stream.seek(0)
    length = int.from_bytes(stream.read(8), "little")
    if length > LIMITS.safetensors_header_bytes:
        raise FormatError(
            f"{what} has a header of {length} bytes, allowed are "
            f"{LIMITS.safetensors_header_bytes}; check that it is the right file"
        )
    return 8 + length


def _bits(dtype: str) -> int:
    """Bits of one value: the number in its type, such as 16 for "BF16" and 8 for "F8_E4M3"."""
    if dtype == "BOOL":
        return 8
    return int("".join(c for c in dtype.partition("_")[0] if c.isdigit()))


def _broken(error: Exception, what: str) -> FormatError:
    return FormatError(
        f"{what} is not a valid safetensors file: {shown(error, 100)}; download it again"
    )


def write_safetensors(
    path: Path, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
) -> None:
    """Write a file.

    The bytes depend on the tensors only, not on their order. With more than one entry of
    `metadata`, their order in the file is not the same in every process.

    Args:
        path: the file; one that exists is replaced.
        tensors: name → float16, float32, float64, int8, int32 or int64 array.
        metadata: text → text, kept in the header.
    """
    plain: dict[str, NDArray[Any]] = {}
    for name, array in tensors.items():
        dtype = array.dtype.newbyteorder("<")
        if name == "__metadata__" or dtype not in _WRITABLE:
            raise ConfigError(
                f"tensor '{shown(name, 60)}' of type {array.dtype} cannot be written; use one of "
                f"{', '.join(sorted(d.name for d in _WRITABLE))} and another name than __metadata__"
            )
        plain[name] = np.ascontiguousarray(array, dtype).reshape(array.shape)
    try:
        path.touch()
        mode = path.stat().st_mode
        save_file(plain, path, dict(metadata))
        path.chmod(mode)  # the library's files are for their owner alone
    except (SafetensorError, OSError) as error:
        raise ElmoreError(
            f"cannot write '{shown(path, 130)}': {shown(error, 80)}; free some space or choose "
            "another folder"
        ) from error

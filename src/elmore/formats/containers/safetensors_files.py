"""Read and write safetensors files with the safetensors library.

The library checks a header completely: known types, sizes that fit the shapes, tensors next to each
other up to the end of the file. What this module adds: one-line errors, NaN and infinite values
refused, and arrays that are mapped instead of copied: the processes of a machine share them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize, safe_open
from safetensors.numpy import save_file

from elmore.base.io import open_checked
from elmore.base.messages import shown
from elmore.errors import ElmoreError, FormatError
from elmore.formats.containers.arrays import Arrays

# What we read and write; the format is little-endian.
_TYPES = {
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "I8": "int8",
    "I32": "int32",
    "I64": "int64",
}


def read_safetensors(source: BinaryIO | Path, *, what: str) -> Arrays:
    """Open a safetensors file and check its complete header.

    The tensors of a file on the disk are mapped: they are read-only, outlive the result, and the
    processes of a machine share them. A stream from elsewhere is read into memory.

    Raises:
        FormatError: the header is too large, broken, or does not cover the file exactly.
    """
    stream = open_checked(source, what="safetensors file") if isinstance(source, Path) else source
    try:
        return _read(stream, what)
    except BaseException:
        stream.close()
        raise


def _read(stream: BinaryIO, what: str) -> Arrays:
    label = f"'{shown(what, 100)}'"
    length = int.from_bytes(stream.read(8), "little")
    path = getattr(stream, "name", None)
    mapped = isinstance(path, str | os.PathLike)
    try:
        if mapped:
            with safe_open(path, "numpy"):
                pass  # it has checked the header
            data: NDArray[np.uint8] = np.asarray(np.memmap(stream, np.uint8, "r"))
        else:
            stream.seek(0)
            raw = stream.read()
            deserialize(raw)  # type: ignore[no-untyped-call]  # the library is in Rust
            data = np.frombuffer(raw, np.uint8)
        entries = json.loads(bytes(data[8 : 8 + length]))
        entries.pop("__metadata__", None)
        types = {name: _TYPES.get(e["dtype"], e["dtype"]) for name, e in entries.items()}
        shapes = {name: tuple(e["shape"]) for name, e in entries.items()}
        places = {name: slice(*e["data_offsets"]) for name, e in entries.items()}
    except (SafetensorError, OSError, ValueError, LookupError, TypeError) as error:
        raise FormatError(
            f"{label} is not a valid safetensors file: {shown(error, 100)}; download it again"
        ) from None
    tensors = data[8 + length :]

    def read(name: str) -> NDArray[Any]:
        if types[name] not in _TYPES.values() or len(shapes[name]) > 32:  # numpy's limit
            raise FormatError(
                f"{label} has '{shown(name, 80)}' of type {types[name]} and {len(shapes[name])} "
                f"dimensions, readable are {', '.join(_TYPES.values())}; convert it"
            )
        # Touching the lost pages of a file that shrank would end the process (SIGBUS).
        if mapped and not stream.closed and os.fstat(stream.fileno()).st_size != len(data):
            raise FormatError(
                f"{label} had {len(data)} bytes and now has another size; restore it and load "
                "the model again"
            )
        dtype = np.dtype(types[name]).newbyteorder("<")
        part = tensors[places[name]]
        if part.ctypes.data % dtype.itemsize:
            part = part.copy()  # other writers need not align
        return np.asarray(part.view(dtype).reshape(shapes[name]))

    return Arrays(what, shapes, types, read, stream.close)


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
    # Without `reshape`, a scalar would become an array of one number.
    plain = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in tensors.items()}
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

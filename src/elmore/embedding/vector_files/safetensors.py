"""safetensors: the vectors of all tokens in one matrix, and where each sentence starts in it.

    vectors  (n_tokens, dim)
    offsets  (n_sentences + 1,) int64: sentence k has the rows offsets[k] to offsets[k + 1]

All layers are tensors `layer_0`, `layer_1`, … instead of `vectors`, so that one can be read without
the others. With pooling there are no offsets, and a row is a sentence. One tensor per sentence, as
in npz, would make a header that no reader takes beyond a million sentences; a matrix can be mapped.
The metadata holds `first`, the number of the first sentence, and `format`.

The header needs the numbers of rows, which are known at the end. Until then the rows wait in
nameless files beside the target: memory stays flat, and the disk needs room for both.
"""

from __future__ import annotations

import json
import math
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_file
from elmore.embedding.vector_files import Reader, Record, Settings, StoredRecord, damaged, stored
from elmore.embedding.vector_files.npy import MatrixReader
from elmore.formats.containers.safetensors_files import read_safetensors

__all__ = ["SafetensorsReader", "SafetensorsWriter", "is_vectors", "open", "read"]

_FORMAT = "elmore-vectors"
_SIZES = {"F16": 2, "F32": 4, "I64": 8}


class SafetensorsWriter:
    """Sets rows aside, and puts them together at the end.

    Args:
        stream: the file.
        offsets: holds the offsets until their number is known.
        rows: each holds the rows of a tensor: one per layer, if all layers are written.
        settings: what is written.
    """

    def __init__(
        self, stream: BinaryIO, offsets: BinaryIO, rows: list[BinaryIO], settings: Settings
    ) -> None:
        self._stream = stream
        self._offsets = offsets
        self._rows = rows
        self._settings = settings
        self._n_sentences = self._n_rows = 0
        offsets.write(struct.pack("<q", 0))

    def write(self, record: Record) -> None:
        """Set the rows of a record aside."""
        values = stored(record, self._settings.dtype)
        layers = values if self._settings.all_layers else values[None]
        # The format is little-endian; other machines turn the bytes round here.
        for file, part in zip(self._rows, layers, strict=True):
            plain = np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<"))
            if plain.size:
                file.write(plain.reshape(-1).view(np.uint8).data)
        self._n_rows += 1 if self._settings.pooled else values.shape[-2]
        self._n_sentences += 1
        self._offsets.write(struct.pack("<q", self._n_rows))

    def close(self) -> None:
        """Write the header and the tensors."""
        settings = self._settings
        dim = int(settings.shape[-1] or 0)
        code = "F16" if settings.dtype == "float16" else "F32"
        tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
        files: list[BinaryIO] = []
        if not settings.pooled:  # first, so that its eight-byte numbers are aligned
            tensors["offsets"] = ("I64", (self._n_sentences + 1,))
            files.append(self._offsets)
        for k, file in enumerate(self._rows):
            tensors[f"layer_{k}" if settings.all_layers else "vectors"] = (
                code,
                (self._n_rows, dim),
            )
            files.append(file)
        metadata = {"first": str(settings.first), "format": _FORMAT}
        self._stream.write(_header_bytes(tensors, metadata))
        for file in files:
            file.seek(0)
            shutil.copyfileobj(file, self._stream, 1 << 20)


@contextmanager
def open(path: Path, settings: Settings) -> Iterator[SafetensorsWriter]:
    """Open a file."""
    folder = Path(path).absolute().parent
    with atomic_file(path, overwrite=settings.overwrite) as stream, ExitStack() as stack:

        def spool() -> BinaryIO:
            return cast(BinaryIO, stack.enter_context(tempfile.TemporaryFile(dir=folder)))

        count = int(settings.shape[0] or 0) if settings.all_layers else 1
        writer = SafetensorsWriter(stream, spool(), [spool() for _ in range(count)], settings)
        yield writer
        writer.close()


class SafetensorsReader:
    """Reads sentences that are some rows of one array, or of one per layer."""

    def __init__(self, layers: list[NDArray[Any]], offsets: NDArray[np.int64], stacked: bool):
        self._layers = layers
        self._offsets = offsets
        self._stacked = stacked
        dim = layers[0].shape[1]
        self.shape: tuple[int | None, ...] = (len(layers), None, dim) if stacked else (None, dim)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def record(self, k: int) -> StoredRecord:
        """Some rows."""
        start, end = self._offsets[k : k + 2]
        parts = [layer[start:end] for layer in self._layers]
        return StoredRecord(np.stack(parts) if self._stacked else parts[0])

    def close(self) -> None:
        """The map of the file is closed with the last array that uses it."""


def is_vectors(path: Path) -> bool:
    """Whether it is a file of vectors, not of weights."""
    with read_safetensors(path, what=str(path)) as view:
        return view.metadata.get("format") == _FORMAT


def read(path: Path) -> Reader:
    """Map a file."""
    view = read_safetensors(path, what=f"'{path}'")
    if view.metadata.get("format") != _FORMAT:
        raise damaged(path, "it holds other tensors")
    names = view.names()
    stacked = "vectors" not in names
    wanted = [f"layer_{k}" for k in range(len(names))] if stacked else ["vectors"]
    # Not checked for NaN: that would read the complete file.
    layers = [view.read(name, check=False) for name in wanted if name in names]
    if not layers or any(layer.ndim != 2 for layer in layers):
        raise damaged(path, "it has no matrix of vectors")
    if "offsets" not in names:
        # (n, layers, dim): pooled layers are few, and stored apart.
        return MatrixReader(np.stack(layers, axis=1) if stacked else layers[0])
    return SafetensorsReader(layers, view.read("offsets"), stacked)


def _header_bytes(
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

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

import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from elmore._atomic import atomic_file
from elmore.embedding.writers import Record, Settings, stored
from elmore.formats.files.safetensors_files import header_bytes

__all__ = ["SafetensorsWriter", "open"]


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
        metadata = {"first": str(settings.first), "format": "elmore-vectors"}
        self._stream.write(header_bytes(tensors, metadata))
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

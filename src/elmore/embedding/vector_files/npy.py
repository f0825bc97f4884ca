"""One array that `numpy.load` opens and can map: a row per sentence, so only with pooling.

(n_sentences, dim), or (n_sentences, layers, dim) for all layers. The number of rows is known at the
end; numpy leaves space for it in the header, which is then written again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from elmore.base.atomic import atomic_file
from elmore.embedding.vector_files import Record, Settings, stored

__all__ = ["NpyWriter", "open"]


class NpyWriter:
    """Writes rows after a header that `close` completes."""

    def __init__(self, stream: BinaryIO, settings: Settings) -> None:
        self._stream = stream
        self._settings = settings
        self._count = 0
        self._header()
        self._start = stream.tell()

    def write(self, record: Record) -> None:
        """Write a row."""
        self._stream.write(stored(record, self._settings.dtype).tobytes())
        self._count += 1

    def close(self) -> None:
        """Write the number of rows."""
        self._stream.seek(0)
        self._header()
        if self._stream.tell() != self._start:
            raise RuntimeError("numpy's header has another length than before")

    def _header(self) -> None:
        header = {
            "descr": np.lib.format.dtype_to_descr(np.dtype(self._settings.dtype)),
            "fortran_order": False,
            "shape": (self._count, *self._settings.shape),
        }
        np.lib.format.write_array_header_1_0(self._stream, header)


@contextmanager
def open(path: Path, settings: Settings) -> Iterator[NpyWriter]:
    """Open a file."""
    with atomic_file(path, overwrite=settings.overwrite) as stream:
        writer = NpyWriter(stream, settings)
        yield writer
        writer.close()

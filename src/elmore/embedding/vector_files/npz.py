"""An archive that `numpy.load` opens: arrays "0", "1", ... for the sentences, in their order.

Each is (time, dim), or (layers, time, dim) for all layers. With pooling there is one array
"vectors", (n_sentences, dim) or (n_sentences, layers, dim). Arrays go into the archive one by one;
only its table of contents is in memory, about 350 bytes per sentence.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from elmore.base.atomic import atomic_file
from elmore.embedding.vector_files import Record, Settings, stored

__all__ = ["NpzWriter", "open"]

_HEADER_ROOM = 4096  # more than the header of an array takes


class NpzWriter:
    """Writes records into a zip; pooled vectors wait in `spool` until their number is known."""

    def __init__(self, stream: BinaryIO, spool: BinaryIO, settings: Settings) -> None:
        # Not compressed: numbers hardly shrink, and numpy.savez does the same.
        self._archive = zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED)
        self._spool = spool
        self._settings = settings
        self._count = 0

    def write(self, record: Record) -> None:
        """Write an array, or set a row aside."""
        values = stored(record, self._settings.dtype)
        if self._settings.pooled:
            self._spool.write(values.tobytes())
        else:
            with self._member(str(self._settings.first + self._count), values.nbytes) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)
        self._count += 1

    def close(self) -> None:
        """Write the matrix of pooled vectors, if any, and the table of contents."""
        if self._settings.pooled:
            size = self._spool.tell()
            self._spool.seek(0)
            dtype = np.dtype(self._settings.dtype)
            header = {
                "descr": np.lib.format.dtype_to_descr(dtype),
                "fortran_order": False,
                "shape": (self._count, *self._settings.shape),
            }
            with self._member("vectors", size) as member:
                np.lib.format.write_array_header_1_0(member, header)
                shutil.copyfileobj(self._spool, member, 1 << 20)
        self._archive.close()

    def abandon(self) -> None:
        """Keep the archive from writing its table of contents when it is collected."""
        self._archive.fp = None

    def _member(self, name: str, size: int) -> BinaryIO:
        info = zipfile.ZipInfo(f"{name}.npy")  # of a fixed date: same input, same bytes
        info.file_size = size + _HEADER_ROOM  # tells zipfile whether 4 GiB are enough
        return self._archive.open(info, "w")  # type: ignore[return-value]  # IO[bytes] is a BinaryIO here


@contextmanager
def open(path: Path, settings: Settings) -> Iterator[NpzWriter]:
    """Open a file."""
    with (
        atomic_file(path, overwrite=settings.overwrite) as stream,
        tempfile.TemporaryFile(dir=Path(path).absolute().parent) as spool,
    ):
        writer = NpzWriter(stream, spool, settings)
        try:
            yield writer
            writer.close()
        except BaseException:
            writer.abandon()
            raise

"""An archive that `numpy.load` opens: arrays "0", "1", ... for the sentences, in their order.

Each is (time, dim), or (layers, time, dim) for all layers. With pooling there is one array
"vectors", (n_sentences, dim) or (n_sentences, layers, dim). Arrays go into the archive one by one;
only its table of contents is in memory, about 350 bytes per sentence.
"""

from __future__ import annotations

import math
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_file
from elmore.base.io import open_checked
from elmore.embedding.vector_files import Reader, Record, Settings, StoredRecord, damaged, stored
from elmore.embedding.vector_files.npy import HEADER_ERRORS, MatrixReader

__all__ = ["NpzReader", "NpzWriter", "open", "read"]

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


class NpzReader:
    """Reads one array per sentence."""

    def __init__(self, path: Path, stream: BinaryIO, members: list[zipfile.ZipInfo]) -> None:
        self._path = path
        self._stream = stream
        self._members = members
        self._ends = stream.seek(0, 2)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """That of the first array, with None for its tokens."""
        if not self._members:
            return ()
        *layers, _, dim = self.array(self._members[0])[2]
        return (*layers, None, dim)

    def __len__(self) -> int:
        return len(self._members)

    def record(self, k: int) -> StoredRecord:
        """Read an array."""
        offset, dtype, shape = self.array(self._members[k])
        values = np.empty(shape, dtype)
        self._stream.seek(offset)
        # Not a map: a list of many records would be as many maps, and a process may have few.
        self._stream.readinto(values.reshape(-1).view(np.uint8).data)  # type: ignore[attr-defined]  # all binary files
        return StoredRecord(values)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def array(self, member: zipfile.ZipInfo) -> tuple[int, np.dtype[Any], tuple[int, ...]]:
        """Where the numbers of an array start, their type, and its shape."""
        try:
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError("its arrays are compressed")
            self._stream.seek(member.header_offset)
            # The local header has a name and an extra field of its own lengths.
            lengths = struct.unpack("<26xHH", self._stream.read(30))
            self._stream.seek(sum(lengths), 1)
            version = np.lib.format.read_magic(self._stream)
            if version != (1, 0):
                raise ValueError(f"an array of version {version}")
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(self._stream)
            start = self._stream.tell()
            if fortran or dtype.kind != "f" or len(shape) < 2:
                raise ValueError(f"an array of {dtype} and shape {shape}")
            if start + math.prod(shape) * dtype.itemsize > self._ends:
                raise ValueError("it ends too early")
        except (*HEADER_ERRORS, struct.error) as error:
            raise damaged(self._path, error) from None
        return start, dtype, shape


def read(path: Path) -> Reader:
    """Open a file; pooled vectors are mapped."""
    stream = open_checked(path, what="file of vectors")
    try:
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
        names = [member.filename.removesuffix(".npy") for member in members]
        reader = NpzReader(path, stream, members)
        if names != ["vectors"]:
            if not all(name.isdecimal() for name in names):
                raise damaged(path, "its arrays have other names than 0, 1, ... or vectors")
            return reader
        offset, dtype, shape = reader.array(members[0])
        if not math.prod(shape):  # an empty file cannot be mapped
            mapped: NDArray[Any] = np.empty(shape, dtype)
        else:
            mapped = np.memmap(stream, dtype, "r", offset=offset, shape=shape)
        stream.close()
        return MatrixReader(mapped)
    except zipfile.BadZipFile as error:
        stream.close()
        raise damaged(path, error) from None
    except BaseException:
        stream.close()
        raise

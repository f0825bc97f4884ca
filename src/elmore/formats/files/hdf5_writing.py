"""Write HDF5 files so that a full disk is an error and not a crash."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import h5py

from elmore._atomic import write_error

__all__ = ["PatientFile", "create_hdf5"]


@contextmanager
def create_hdf5(
    stream: BinaryIO, path: Path, *, versions: tuple[str, str] | None = None
) -> Iterator[tuple[Any, PatientFile]]:
    """Make an HDF5 file in a stream, and close it when the block ends.

    Args:
        stream: empty, open for reading and writing.
        path: its final name for messages.
        versions: oldest and newest version of the file format, as `libver` of h5py.

    Yields:
        the h5py.File and the file under it. What is written inside `PatientFile.checked` fails
        at once; what is not, at the end of the block.
    """
    patient = PatientFile(stream, path)
    file = h5py.File(patient, "w", libver=versions)
    try:
        yield file, patient
        with patient.checked():
            file.close()
            patient.flush()
    finally:
        # Closing twice does no harm; not closing would let the library do it too late.
        patient.give_up()
        with suppress(Exception):
            file.close()


class PatientFile:
    """A file that takes every write and remembers the first that failed.

    The HDF5 library cannot close a file of which a write failed: it tries again when the program
    ends, and crashes it. So it is told that all is well, and `checked` raises what went wrong.

    Args:
        stream: open for reading and writing.
        path: its final name for messages.
    """

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self._stream = stream
        self._path = path
        self._position = 0
        self._end = 0
        self.error: BaseException | None = None

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Raise for a write that failed, whatever the library made of it."""
        try:
            yield
        except (OSError, RuntimeError):
            if self.error is None:
                raise
        if isinstance(self.error, OSError):
            raise write_error(self.error, self._path) from self.error
        if self.error is not None:
            raise self.error

    def give_up(self) -> None:
        """Touch the stream no more, because it is about to be deleted."""
        self.error = self.error or OSError(errno.EIO, os.strerror(errno.EIO))

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move; the stream itself moves when it is used."""
        self._position = offset + (0, self._position, self._end)[whence]
        return self._position

    def tell(self) -> int:
        """Tell the position."""
        return self._position

    def write(self, data: bytes) -> int:
        """Write, or pretend to."""
        size = memoryview(data).nbytes
        self._try(lambda: self._stream.write(data))
        self._position += size
        self._end = max(self._end, self._position)
        return size

    def readinto(self, buffer: bytearray) -> int:
        """Read what was written; zeros once a write failed."""
        view = memoryview(buffer).cast("B")
        count = self._try(lambda: self._stream.readinto(view)) or 0  # type: ignore[attr-defined]  # all binary files
        view[count:] = bytes(len(view) - count)
        self._position += len(view)
        return len(view)

    def read(self, size: int) -> bytes:
        """Read some bytes; h5py knows a file by this method."""
        data = bytearray(size)
        self.readinto(data)
        return bytes(data)

    def truncate(self, size: int) -> int:
        """Set the size."""
        self._try(lambda: self._stream.truncate(size))
        self._end = size
        return size

    def flush(self) -> None:
        """Bring everything to the disk."""
        self._try(self._stream.flush)

    def _try(self, action: Callable[[], int | None]) -> int | None:
        if self.error is None:
            try:
                self._stream.seek(self._position)
                return action()
            except BaseException as error:  # an interrupt would leave the library as helpless
                self.error = error
        return None

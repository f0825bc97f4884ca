"""Write HDF5 files so that a full disk raises an error and does not crash Python."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import h5py

from elmore.base.atomic import write_error

__all__ = ["PatientFile", "create_hdf5"]


@contextmanager
def create_hdf5(
    stream: BinaryIO, path: Path, *, versions: tuple[str, str] | None = None
) -> Iterator[tuple[Any, PatientFile]]:
    """Create an HDF5 file in a stream, and close it when the block ends.

    Args:
        stream: empty, open for reading and writing.
        path: its final name for messages.
        versions: oldest and newest version of the file format, as `libver` of h5py.

    Yields:
        the h5py.File and the file below it. A failed write inside `PatientFile.checked` raises
        at once, any other at the end of the block.
    """
    patient = PatientFile(stream, path)
    file = h5py.File(patient, "w", libver=versions)
    try:
        yield file, patient
        with patient.checked():
            file.close()
            patient.flush()
    finally:
        # Closing twice is harmless; without it the library would close it when Python exits.
        patient.give_up()
        with suppress(Exception):
            file.close()


class PatientFile:
    """A file that accepts every write and remembers the first error.

    The HDF5 library cannot close a file after a failed write: it tries again when the program
    ends, and crashes it. So the library sees every write succeed, and `checked` raises the error.
    """

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self._stream = stream
        self._path = path
        self._position = 0
        self._end = 0
        self.error: BaseException | None = None

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Raise the error of a failed write, whatever the library did with it."""
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
        """Stop using the stream, because it is about to be deleted."""
        self.error = self.error or OSError(errno.EIO, os.strerror(errno.EIO))

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move; the stream itself moves when it is used."""
        self._position = offset + (0, self._position, self._end)[whence]
        return self._position

    def tell(self) -> int:
        """The position."""
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
            except BaseException as error:  # an interrupt leaves the library in the same state
                self.error = error
        return None

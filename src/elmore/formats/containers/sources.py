"""The files of a model, wherever they are, behind one read-only interface.

A `Source` is a folder, a few named files, a zip or a tar (archives.py, tars.py). Format readers
see base names only.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

from elmore.base.io import open_checked
from elmore.base.json import parse_json
from elmore.base.messages import shown
from elmore.errors import FormatError
from elmore.limits import LIMITS

__all__ = ["HDF5_SUFFIXES", "FilesSource", "FolderSource", "Source"]

HDF5_SUFFIXES = (".hdf5", ".h5")


class Source(ABC):
    """Read-only access to the files of a model, as every format reader uses it."""

    def __init__(self, name: str) -> None:
        self.name = shown(name, 100)

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Return the sorted base names of the files.

        A link, FIFO or ambiguous name is listed too; reading it reports what is wrong.
        """

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""

    @abstractmethod
    def read(self, name: str, max_bytes: int) -> bytes:
        """Return a complete file; one that is larger than `max_bytes` is a `FormatError`."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Open a file for reading and seeking; the caller closes it."""

    @abstractmethod
    def local_path(self, name: str) -> Path | None:
        """Return the path of the file, or None if it is in an archive."""

    def read_json(self, name: str) -> dict[str, Any]:
        """Return a JSON file by the rules of `parse_json`."""
        # One byte more than allowed is enough for it to refuse the file.
        return parse_json(self.read(name, LIMITS.json_bytes + 1), what=name)

    def close(self) -> None:  # noqa: B027 (most sources keep nothing open)
        """Close all files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def _missing(self, name: str) -> FormatError:
        return FormatError(
            f"'{self.name}' has no file '{shown(name, 60)}'; check that the model is complete"
        )

    def _too_large(self, name: str, size: int, allowed: int) -> FormatError:
        return FormatError(
            f"'{shown(name, 60)}' in '{self.name}' has {size} bytes, allowed are {allowed}; "
            "check that it is the right file"
        )

    def _ambiguous(self, first: str, second: str) -> FormatError:
        return FormatError(
            f"'{self.name}' has both '{shown(first, 60)}' and '{shown(second, 60)}'; "
            "keep one model only"
        )


class _PlainSource(Source):
    """Files on the disk; `_find` looks each of them up."""

    @abstractmethod
    def _find(self, name: str) -> tuple[Path, bool]:
        """Return the path of a file and whether opening it may follow a link."""

    def size(self, name: str) -> int:
        with self.open(name) as stream:
            return os.fstat(stream.fileno()).st_size

    def read(self, name: str, max_bytes: int) -> bytes:
        with self.open(name) as stream:
            size = os.fstat(stream.fileno()).st_size
            # The file may grow in the meantime, so the size alone does not bound the read.
            try:
                data = b"" if size > max_bytes else stream.read(max_bytes + 1)
            except OSError as error:  # a failing disk, or a file of /proc
                reason = (error.strerror or str(error)).lower()
                raise FormatError(
                    f"'{shown(name, 60)}' in '{self.name}' cannot be read: {reason}; check the disk"
                ) from None
        if max(size, len(data)) > max_bytes:
            raise self._too_large(name, max(size, len(data)), max_bytes)
        return data

    def open(self, name: str) -> BinaryIO:
        path, follow = self._find(name)
        return open_checked(path, what="model file", follow=follow)

    def local_path(self, name: str) -> Path | None:
        path, follow = self._find(name)
        open_checked(path, what="model file", follow=follow).close()
        return path


class FilesSource(_PlainSource):
    """Files that the user named one by one.

    Args:
        files: base name that the readers ask for → the file itself.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = {name: Path(path) for name, path in files.items()}
        super().__init__(", ".join(str(path) for path in self._files.values()))

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._files))

    def _find(self, name: str) -> tuple[Path, bool]:
        if name not in self._files:
            raise self._missing(name)
        return self._files[name], True


class FolderSource(_PlainSource):
    """The files of a folder and of its subfolders, one level deep.

    A name in the folder itself hides the same name in a subfolder.

    Args:
        path: the folder.
        follow_links: allow links to regular files outside, as in a Hugging Face cache, whose
            folders link to `../../blobs`. Without it a link may not leave the folder.
    """

    def __init__(self, path: Path, *, follow_links: bool = False) -> None:
        super().__init__(str(path))
        self._path = Path(path)
        self._follow = follow_links
        self._found: dict[str, list[Path]] = {}
        try:
            self._root = self._path.resolve(strict=True)  # links are compared with it
            self._scan()
        except (OSError, RuntimeError, ValueError) as error:
            if isinstance(error, FormatError):
                raise
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise FormatError(
                f"folder '{self.name}' cannot be read: {shown(reason, 60)}; check the path"
            ) from error

    def _scan(self) -> None:
        below: dict[str, list[Path]] = {}
        folders: list[str] = []
        count = 0
        with os.scandir(self._path) as entries:
            for entry in entries:
                count += 1
                self._check_count(count)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                else:
                    self._found[entry.name] = [self._path / entry.name]
        for folder in sorted(folders):
            # If a folder cannot be listed, a file that is missing later is the error to report.
            with contextlib.suppress(OSError), os.scandir(self._path / folder) as entries:
                for entry in entries:
                    count += 1
                    self._check_count(count)
                    if not entry.is_dir(follow_symlinks=False):
                        below.setdefault(entry.name, []).append(self._path / folder / entry.name)
        for name, paths in below.items():
            self._found.setdefault(name, paths)

    def _check_count(self, count: int) -> None:
        if count > LIMITS.archive_members:
            raise FormatError(
                f"folder '{self.name}' has more than the {LIMITS.archive_members} files allowed; "
                "pass the folder of one model"
            )

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._found))

    def _find(self, name: str) -> tuple[Path, bool]:
        paths = self._found.get(name)
        if not paths:
            raise self._missing(name)
        if len(paths) > 1:
            first, second = (str(path.relative_to(self._path)) for path in sorted(paths)[:2])
            raise self._ambiguous(first, second)
        path = paths[0]
        # False: if the file becomes a link after this check, opening it fails.
        if self._follow or not path.is_symlink():
            return path, self._follow
        try:
            target = path.resolve(strict=True)
        except (OSError, RuntimeError):
            target = None
        if target is None or not target.is_relative_to(self._root):
            raise FormatError(
                f"'{shown(name, 60)}' in '{self.name}' is a link that leaves the folder; "
                "put the file itself there"
            )
        return target, False

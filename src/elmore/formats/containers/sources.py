"""The files of a model, wherever they are, behind one read-only interface.

A `Source` is a folder, a few named files, or an archive (archives.py). Format readers see base
names only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Self

from elmore.base.io import open_checked
from elmore.base.json import parse_json
from elmore.base.messages import shown
from elmore.errors import FormatError
from elmore.limits import LIMITS

HDF5_SUFFIXES = (".hdf5", ".h5")


@dataclass(frozen=True)
class SourceFile:
    """One file of a source.

    Attributes:
        label: its name with its folders, for messages.
        open: opens it for reading and seeking.
        size: bytes that an archive declares; None if the file itself says it.
    """

    label: str
    open: Callable[[], BinaryIO]
    size: int | None = None


class Source:
    """Read-only access to the files of a model, as every format reader uses it.

    Args:
        name: where they are, for messages.
        files: by base name; several of one name are an error only when that name is read.
        close: called when the source is closed; streams that were opened stay open.
    """

    def __init__(
        self,
        name: str,
        files: Mapping[str, Sequence[SourceFile]],
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = shown(name, 100)
        self._files = files
        self.close = close

    def names(self) -> tuple[str, ...]:
        """The sorted base names of the files."""
        return tuple(sorted(self._files))

    def _find(self, name: str) -> SourceFile:
        files = self._files.get(name, ())
        if not files:
            raise FormatError(
                f"'{self.name}' has no file '{shown(name, 60)}'; check that the model is complete"
            )
        if len(files) > 1:
            raise FormatError(
                f"'{self.name}' has both '{shown(files[0].label, 60)}' and "
                f"'{shown(files[1].label, 60)}'; keep one model only"
            )
        return files[0]

    def size(self, name: str) -> int:
        """The size of a file in bytes."""
        declared = self._find(name).size
        if declared is not None:
            return declared
        with self.open(name) as stream:
            return os.fstat(stream.fileno()).st_size

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading and seeking; the caller closes it."""
        return self._find(name).open()

    def read(self, name: str, max_bytes: int) -> bytes:
        """Read a complete file; one that is larger than `max_bytes` is a `FormatError`."""
        size = self.size(name)
        if size <= max_bytes:
            with self.open(name) as stream:
                try:
                    data = stream.read(max_bytes + 1)  # it may have grown in the meantime
                except OSError as error:  # a failing disk, or a file of /proc
                    reason = (error.strerror or str(error)).lower()
                    raise FormatError(
                        f"'{shown(name, 60)}' in '{self.name}' cannot be read: {reason}; "
                        "check the disk"
                    ) from None
            if len(data) <= max_bytes:
                return data
            size = len(data)
        raise FormatError(
            f"'{shown(name, 60)}' in '{self.name}' has {size} bytes, allowed are {max_bytes}; "
            "check that it is the right file"
        )

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON file by the rules of `parse_json`."""
        # One byte more than allowed is enough for it to refuse the file.
        return parse_json(self.read(name, LIMITS.json_bytes + 1), what=name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def files_source(files: Mapping[str, Path]) -> Source:
    """Files that the user named one by one: base name that the readers ask for → the file."""
    return Source(
        ", ".join(str(path) for path in files.values()),
        {
            name: [SourceFile(name, partial(open_checked, Path(path), what="model file"))]
            for name, path in files.items()
        },
    )


def folder_source(path: Path, *, follow_links: bool = False) -> Source:
    """The files of a folder and of its subfolders, one level deep.

    A name in the folder itself hides the same name in a subfolder.

    Args:
        path: the folder.
        follow_links: allow links to regular files outside, as in a Hugging Face cache, whose
            folders link to `../../blobs`. Without it a link may not leave the folder.
    """

    def found(file: Path) -> SourceFile:
        opened = partial(open_checked, file, what="model file")
        if not follow_links:
            opened = partial(_open_inside, file, root)
        return SourceFile(str(file.relative_to(path)), opened)

    above: dict[str, list[SourceFile]] = {}
    below: dict[str, list[SourceFile]] = {}
    try:
        root = path.resolve(strict=True)
        for entry in sorted(path.iterdir()):
            if entry.is_symlink() or not entry.is_dir():
                above[entry.name] = [found(entry)]
                continue
            # If a folder cannot be listed, a file that is missing later is the error to report.
            with contextlib.suppress(OSError):
                for inner in sorted(entry.iterdir()):
                    if inner.is_symlink() or not inner.is_dir():
                        below.setdefault(inner.name, []).append(found(inner))
    except (OSError, RuntimeError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise FormatError(
            f"folder '{shown(path, 100)}' cannot be read: {shown(reason, 60)}; check the path"
        ) from error
    return Source(str(path), {**below, **above})


def _open_inside(file: Path, root: Path) -> BinaryIO:
    """Open a file of a folder that may be hostile; `root` is the folder without links."""
    if file.is_symlink():
        try:
            target = file.resolve(strict=True)
        except (OSError, RuntimeError):
            target = None
        if target is None or not target.is_relative_to(root):
            raise FormatError(
                f"'{shown(file, 140)}' is a link that leaves the folder; put the file itself there"
            )
        file = target
    # If the file becomes a link after this check, opening it fails.
    return open_checked(file, what="model file", follow=False)

"""The files of a model, wherever they are, behind one read-only interface.

A `Source` is a folder, a few named files, or an archive. Format readers see base names only.

Archives are never extracted: a member's name is only a key, wherever it seems to lead. Members are
decompressed one by one into memory or a temporary file that has no name.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, Self, cast

from elmore.base.atomic import write_error
from elmore.base.io import open_checked
from elmore.base.json import parse_json
from elmore.base.messages import shown
from elmore.errors import ElmoreError, FormatError
from elmore.limits import LIMITS

HDF5_SUFFIXES = (".hdf5", ".h5")
_CHUNK = 1 << 18  # bytes read at a time
_HEADER = 1 << 13  # bytes of a tar's header at most
_IN_MEMORY = 1 << 26  # larger members are decompressed into a temporary file
# Name with its folders, size, and what opens it.
_Member = tuple[str, int, Callable[[], IO[bytes] | None]]


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

    `names` are their base names.

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
        self.names = tuple(sorted(files))
        self._files = files
        self.close = close

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
        declared = self._find(name).size
        if declared is None or declared <= max_bytes:
            with self.open(name) as stream:
                try:
                    data = stream.read(max_bytes + 1)
                except OSError as error:  # a failing disk, or a file of /proc
                    reason = (error.strerror or str(error)).lower()
                    raise FormatError(
                        f"'{shown(name, 60)}' in '{self.name}' cannot be read: {reason}; "
                        "check the disk"
                    ) from None
            if len(data) <= max_bytes:
                return data
        raise FormatError(
            f"'{shown(name, 60)}' in '{self.name}' has {self.size(name)} bytes, allowed are "
            f"{max_bytes}; check that it is the right file"
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


# Archives -----------------------------------------------------------------------------------------


def zip_source(stream: BinaryIO, name: str) -> Source:
    """The members of a zip, which is closed with the source."""
    import zipfile  # most models are folders

    with _reading(name, stream.close):
        archive = zipfile.ZipFile(stream)
        infos = [info for info in archive.infolist() if not info.is_dir()]
        _check_ratio(name, _size(stream), sum(info.file_size for info in infos))
    members = [(info.filename, info.file_size, partial(archive.open, info)) for info in infos]
    return _source(name, members, stream.close)


def tar_source(stream: BinaryIO, name: str) -> Source:
    """The members of a tar, plain or compressed by gzip; it is closed with the source."""
    import tarfile  # most models are folders

    compressed = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    if compressed:
        # Members are read in any order, gzip only forward: continue with a decompressed copy.
        with stream as packed:
            check = partial(_check_ratio, name, _size(packed))
            plain = cast(IO[bytes], gzip.GzipFile(fileobj=packed))
            stream = _copied(name, lambda: plain, check)
    with _reading(name, stream.close):
        try:
            small = cast(BinaryIO, _SmallReads(stream))
            tar = tarfile.open(fileobj=small, mode="r:")  # noqa: SIM115 (closed with its stream)
        except tarfile.ReadError:
            raise FormatError(
                f"'{shown(name, 100)}' is neither a zip nor a tar; pass a model folder, zip or tar"
            ) from None
        members: list[_Member] = []
        for info in tar:
            if info.size < 0:  # tarfile would go back and read for ever
                raise _broken(name, "a negative size")
            # Nothing else has bytes of its own; a sparse file has more than the archive.
            if info.isfile() and not info.issparse():
                members.append((info.name, info.size, partial(tar.extractfile, info)))
        # The library takes a broken header for the end, which is a block of zeros or nothing.
        stream.seek(tar.offset)
        if stream.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise _broken(name, f"no valid header at byte {tar.offset}")
        tar.fileobj = stream
    return _source(name, members, stream.close)


class _SmallReads:
    """A tar with short headers: tarfile takes quadratic time for long ones (CVE-2024-6232)."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, size: int) -> bytes:
        if size > _HEADER:
            raise ValueError(f"a header of {size} bytes")
        return self._stream.read(size)


def _source(name: str, members: Sequence[_Member], close: Callable[[], object]) -> Source:
    files: dict[str, list[SourceFile]] = {}
    for label, size, opened in members:
        file = SourceFile(label, partial(_copied, name, opened), size)
        files.setdefault(label.rpartition("/")[2], []).append(file)
    return Source(name, files, close)


def _size(stream: BinaryIO) -> int:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return size


def _check_ratio(name: str, packed: int, size: int) -> None:
    """Refuse an archive that decompresses to too many bytes."""
    ratio = LIMITS.archive_ratio
    if size > max(LIMITS.archive_ratio_from, ratio * packed):
        raise FormatError(
            f"'{shown(name, 100)}' unpacks to more than {ratio} times its {packed} bytes; if you "
            "trust it, unpack it and pass the folder"
        )


def _copied(
    name: str,
    opened: Callable[[], IO[bytes] | None],
    check: Callable[[int], None] = lambda size: None,
) -> BinaryIO:
    """Decompress a member: readers seek back and forth, which a decompressor cannot do quickly."""
    plain = cast(BinaryIO, tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 (returned)
    with _reading(name, plain.close), cast(IO[bytes], opened()) as member:
        while chunk := member.read(_CHUNK):
            try:
                plain.write(chunk)
            except OSError as error:
                place = Path(tempfile.gettempdir()) / "decompressed model file"
                raise write_error(error, place) from error
            check(plain.tell())
        plain.seek(0)
    return plain


@contextlib.contextmanager
def _reading(name: str, close: Callable[[], object]) -> Iterator[None]:
    """Turn every error of the libraries into a `FormatError`, and close the archive then."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(OSError):
            close()
        # Broken archives make the libraries raise almost anything.
        if isinstance(error, ElmoreError) or not isinstance(error, Exception):
            raise
        raise _broken(name, str(error) or type(error).__name__) from error


def _broken(name: str, problem: str) -> FormatError:
    return FormatError(
        f"archive '{shown(name, 100)}' is broken: {shown(problem, 80)}; download it again"
    )

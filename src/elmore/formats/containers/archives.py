"""Zips and tars that hold the files of a model.

Archives are never extracted. Members are read one by one, and their bytes are counted during
decompression, because headers may lie.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import os
import re
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

from elmore.base.atomic import write_error
from elmore.base.io import open_checked
from elmore.base.messages import shown
from elmore.errors import FormatError
from elmore.formats.containers.sources import Source
from elmore.limits import LIMITS

__all__ = ["ArchiveSource", "TarSource", "ZipSource"]

_CHUNK = 1 << 18  # bytes read at a time
_IN_MEMORY = 1 << 20  # larger members are decompressed into a temporary file


@dataclass(frozen=True)
class _Member:
    """One file in an archive; `open` opens its decompressed bytes."""

    name: str  # with its folders
    size: int
    open: Callable[[], IO[bytes] | None]


class ArchiveSource(Source):
    """What zips and tars share: checked names, limits, decompression of one member."""

    kind = "archive"

    def __init__(self, path: Path | str, stream: BinaryIO | None = None) -> None:
        super().__init__(str(path))
        self._members: dict[str, list[_Member]] = {}
        self._full: set[str] = set()
        self._total = 0
        self._file = open_checked(Path(path), what=self.kind) if stream is None else stream
        # The limit of decompressed bytes is a multiple of it.
        self._archive_size = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        try:
            with self._reading():
                self._list()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _list(self) -> None:
        """Fill `_members` through `_add`."""

    def _error(self, problem: str, fix: str = "pack it again") -> FormatError:
        return FormatError(f"{self.kind} '{self.name}' {problem}; {fix}")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn every error of the decompressors into a `FormatError`."""
        try:
            yield
        except (
            zipfile.BadZipFile,
            tarfile.TarError,
            zlib.error,
            EOFError,
            OSError,
            ValueError,
            LookupError,
            TypeError,
            struct.error,
            NotImplementedError,
            RuntimeError,
            OverflowError,
            MemoryError,
        ) as error:
            if isinstance(error, FormatError):
                raise
            raise self._error(
                f"is broken: {shown(str(error) or type(error).__name__, 80)}", "download it again"
            ) from error

    def _check_name(self, name: str) -> str:
        """Refuse a name that could lead outside; return it without './'."""
        parts = name.split("/")
        problem = None
        if "\0" in name:
            problem = "a NUL"
        elif "\\" in name:
            problem = "a backslash"
        elif name.startswith("/"):
            problem = "an absolute path"
        elif re.match(r"[A-Za-z]:", name):
            problem = "a drive letter"
        elif ".." in parts:
            problem = "'..'"
        if problem:
            raise self._error(f"has a member '{shown(name, 60)}' with {problem} in its name")
        return "/".join(part for part in parts if part not in ("", "."))

    def _add(self, member: _Member, *, folder: bool) -> None:
        """List a member; count names and bytes."""
        clean = self._check_name(member.name)
        if clean in self._full:
            raise self._error(f"has the member '{shown(clean, 80)}' twice")
        self._full.add(clean)
        if len(self._full) > LIMITS.archive_members:
            raise self._error(f"has more than the {LIMITS.archive_members} members allowed")
        self._total += member.size
        self._check_total(self._total)
        if not folder:
            if not clean:
                raise self._error("has a member without a name")
            # Readers ask for base names. Two members with the same one are an error
            # only when it is read.
            base = clean.rpartition("/")[2]
            self._members.setdefault(base, []).append(member)

    def _check_total(self, size: int) -> None:
        """Refuse an archive that decompresses to too many bytes."""
        fix = "if you trust it, unpack it and pass the folder"
        if size > LIMITS.archive_unpacked_bytes:
            raise self._error(
                f"unpacks to more than the {LIMITS.archive_unpacked_bytes} bytes allowed", fix
            )
        ratio = LIMITS.archive_ratio
        if size > max(LIMITS.archive_ratio_from, ratio * self._archive_size):
            raise self._error(
                f"unpacks to more than {ratio} times its {self._archive_size} bytes", fix
            )

    def _find(self, name: str) -> _Member:
        members = self._members.get(name)
        if not members:
            raise self._missing(name)
        if len(members) > 1:
            raise self._ambiguous(members[0].name, members[1].name)
        return members[0]

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._members))

    def size(self, name: str) -> int:
        """Return the decompressed size of a file in bytes, as the archive declares it."""
        return self._find(name).size

    def read(self, name: str, max_bytes: int) -> bytes:
        member = self._find(name)
        if member.size > max_bytes:
            raise self._too_large(name, member.size, max_bytes)
        return b"".join(self._unpack(member))

    def open(self, name: str) -> BinaryIO:
        """Decompress a file into memory or a temporary file, which is deleted when it is closed."""
        member = self._find(name)
        if member.size <= _IN_MEMORY:
            return io.BytesIO(b"".join(self._unpack(member)))
        # HDF5 and safetensors readers seek back and forth, which a decompressor can only
        # do by starting again.
        folder = Path(tempfile.gettempdir())
        stream = cast(BinaryIO, tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 (returned open)
        try:
            for chunk in self._unpack(member):
                try:
                    stream.write(chunk)
                except OSError as error:
                    raise write_error(error, folder / "decompressed model file") from error
            stream.seek(0)
        except BaseException:
            with contextlib.suppress(OSError):
                stream.close()
            raise
        return stream

    def local_path(self, name: str) -> Path | None:
        """Return None: the file is in an archive."""
        self._find(name)
        return None

    def _unpack(self, member: _Member) -> Iterator[bytes]:
        """Yield exactly the declared bytes of a member, or refuse it."""
        count = 0
        with self._reading(), contextlib.closing(member.open() or io.BytesIO()) as stream:
            # Stop at once: a bomb may hold far more than it declares.
            while count <= member.size and (chunk := stream.read(_CHUNK)):
                count += len(chunk)
                yield chunk
        if count != member.size:
            found = "more" if count > member.size else f"{count}"
            raise self._error(
                f"declares {member.size} bytes for '{shown(member.name, 60)}' but holds {found}",
                "download it again",
            )

    def close(self) -> None:
        """Close the archive; streams that were opened stay open."""
        self._file.close()


class _Bounded(io.RawIOBase):
    """A file that refuses single large reads: the libraries read as much as a header declares."""

    def __init__(self, file: BinaryIO, max_bytes: int) -> None:
        self._wrapped = file
        self._max_bytes = max_bytes

    def read(self, size: int = -1) -> bytes:
        if size < 0:  # zipfile reads the last 64 KiB in this way
            size = self._max_bytes + 1
            data = self._wrapped.read(size)
            if len(data) == size:
                raise ValueError(f"more than {self._max_bytes} bytes after its members")
            return data
        if size > self._max_bytes:
            raise ValueError(f"a header of {size} bytes, allowed are {self._max_bytes}")
        return self._wrapped.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._wrapped.seek(offset, whence)

    def tell(self) -> int:
        return self._wrapped.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


class ZipSource(ArchiveSource):
    """The members of a zip.

    Args:
        path: the zip.
        stream: the open zip, if it is inside another file; `path` is then its name.
    """

    kind = "zip"

    def _list(self) -> None:
        bounded = _Bounded(self._file, max(LIMITS.archive_directory_bytes, 2 * _CHUNK))
        self._zip = zipfile.ZipFile(cast(BinaryIO, bounded))
        infos = self._zip.infolist()
        for info in infos:
            # zipfile cuts `filename` at a NUL, which would hide it from the check of names.
            name = info.orig_filename
            self._check_member(info, name)
            opened = functools.partial(self._zip.open, info)
            self._add(_Member(name, info.file_size, opened), folder=name.endswith("/"))
        self._check_overlap(infos)

    def _check_member(self, info: zipfile.ZipInfo, name: str) -> None:
        if info.flag_bits & 0x2041:  # encrypted, strongly encrypted, masked directory
            raise self._error(f"has the encrypted member '{shown(name, 80)}'", "decrypt it first")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise self._error(f"has the link or device '{shown(name, 80)}'")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._error(
                f"compresses '{shown(name, 80)}' by method {info.compress_type}", "use deflate"
            )

    def _check_overlap(self, infos: list[zipfile.ZipInfo]) -> None:
        """Refuse members that share bytes: they make petabytes of a small zip (CVE-2024-0450)."""
        free = 0
        directory = self._zip.start_dir
        for info in sorted(infos, key=lambda info: info.header_offset):
            if info.header_offset < free:
                raise self._error(f"has overlapping members at '{shown(info.filename, 80)}'")
            self._file.seek(info.header_offset)
            header = self._file.read(30)
            if len(header) != 30 or header[:4] != b"PK\x03\x04":
                raise self._error(f"has no member at '{shown(info.filename, 80)}'")
            name, extra = struct.unpack("<HH", header[26:30])
            free = info.header_offset + 30 + name + extra + info.compress_size
            if free > directory:
                raise self._error(f"has overlapping members at '{shown(info.filename, 80)}'")

    def close(self) -> None:
        """Close the zip; streams that were opened stay open."""
        # Listing may have failed before the zip was open.
        if hasattr(self, "_zip"):
            self._zip.close()
        super().close()


class TarSource(ArchiveSource):
    """The members of a tar, plain or compressed by gzip."""

    kind = "tar"

    def _list(self) -> None:
        head = self._file.read(2)
        self._file.seek(0)
        if head == b"\x1f\x8b":
            self._decompress()
        bounded = _Bounded(self._file, max(LIMITS.archive_header_bytes, 2 * _CHUNK))
        try:
            tar = tarfile.open(fileobj=cast(BinaryIO, bounded), mode="r:")  # noqa: SIM115
        except tarfile.ReadError:
            raise FormatError(
                f"'{self.name}' is neither a zip nor a tar; pass a model folder, zip or tar"
            ) from None
        for info in tar:
            if not info.isdir() and (not info.isfile() or info.issparse()):
                raise self._error(f"has the link, device or sparse file '{shown(info.name, 80)}'")
            if info.size < 0 or (info.isdir() and info.size):
                raise self._error(f"gives '{shown(info.name, 60)}' a broken size")
            opened = functools.partial(tar.extractfile, info)
            self._add(_Member(info.name, info.size, opened), folder=info.isdir())
        # The library takes a broken header for the end, which is a block of zeros or nothing.
        self._file.seek(tar.offset)
        if self._file.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise self._error(f"has a broken header at byte {tar.offset}", "download it again")

    def _decompress(self) -> None:
        """Go on with a decompressed copy: members are read in any order, gzip only forward."""
        plain = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 (closed by `close`)
        packed, self._file = self._file, plain
        with packed, gzip.GzipFile(fileobj=packed) as stream:
            size = 0
            while chunk := stream.read(_CHUNK):  # the checksum is at the very end
                size += len(chunk)
                self._check_total(size)
                try:
                    plain.write(chunk)
                except OSError as error:
                    folder = Path(tempfile.gettempdir())
                    raise write_error(error, folder / "decompressed model file") from error
        plain.seek(0)

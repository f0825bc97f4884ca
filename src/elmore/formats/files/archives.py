"""What zips and tars share: one file that holds the files of a model.

Archives are never extracted: members are read one by one, and the bytes are counted while they
are unpacked, because headers lie.
"""

from __future__ import annotations

import contextlib
import io
import lzma
import os
import re
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from elmore._atomic import write_error
from elmore._io import open_checked
from elmore._messages import shown
from elmore.errors import FormatError
from elmore.formats.files.sources import NamedSource
from elmore.limits import LIMITS, Limits

__all__ = ["CHUNK", "IN_MEMORY", "ArchiveSource", "Member", "ZipSource"]

CHUNK = 1 << 18  # bytes read at a time
IN_MEMORY = 1 << 20  # members up to this size are not worth a temporary file


@dataclass(frozen=True)
class Member:
    """One file in an archive."""

    name: str  # with its folders
    size: int
    offset: int = 0  # of the data in the unpacked tar
    info: zipfile.ZipInfo | None = None


class ArchiveSource(NamedSource):
    """What zips and tars share: checked names, limits, unpacking one member."""

    kind = "archive"

    def __init__(self, path: Path | str, limits: Limits, stream: BinaryIO | None = None) -> None:
        super().__init__(str(path))
        self._limits = limits
        self._members: dict[str, list[Member]] = {}
        self._full: set[str] = set()
        self._total = 0
        self._file = open_checked(Path(path), what=self.kind) if stream is None else stream
        self._packed = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        try:
            with self._reading():
                self._list()
        except BaseException:
            self.close()
            raise

    def _list(self) -> None:
        """Fill `_members` through `_add`."""
        raise NotImplementedError

    def _chunks(self, member: Member) -> Iterator[bytes]:
        """Yield the unpacked bytes of a member, however many come."""
        raise NotImplementedError

    def _error(self, problem: str, fix: str = "re-pack it") -> FormatError:
        return FormatError(f"{self.kind} '{self._name}' {problem}; {fix}")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn every way in which the unpackers fail into one `FormatError`."""
        try:
            yield
        except (
            zipfile.BadZipFile,
            zlib.error,
            lzma.LZMAError,
            EOFError,
            OSError,
            ValueError,
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
        """Refuse names that could reach outside; return the name without './'."""
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

    def _add(self, member: Member, *, folder: bool) -> None:
        """Take a listed member, counting names and bytes."""
        clean = self._check_name(member.name)
        if clean in self._full:
            raise self._error(f"has the member '{shown(clean, 80)}' twice")
        self._full.add(clean)
        self._count_member()
        self._total += member.size
        self._check_total(self._total)
        if not folder:
            if not clean:
                raise self._error("has a member without a name")
            base = clean.rpartition("/")[2]
            self._members.setdefault(base, []).append(member)

    def _count_member(self) -> None:
        if len(self._full) > self._limits.archive_members:
            raise self._error(f"has more than the {self._limits.archive_members} members allowed")

    def _check_total(self, unpacked: int) -> None:
        limits = self._limits
        if unpacked > limits.archive_unpacked_bytes:
            raise self._error(
                f"unpacks to more than the {limits.archive_unpacked_bytes} bytes allowed",
                "raise limits.archive_unpacked_bytes if you trust it",
            )
        if unpacked > max(limits.archive_ratio_from, limits.archive_ratio * self._packed):
            raise self._error(
                f"unpacks to more than {limits.archive_ratio} times its {self._packed} bytes",
                "raise limits.archive_ratio if you trust it",
            )

    def _find(self, name: str) -> Member:
        members = self._members.get(name)
        if not members:
            raise self._missing(name)
        if len(members) > 1:
            raise self._ambiguous(members[0].name, members[1].name)
        return members[0]

    def names(self) -> tuple[str, ...]:
        """Return the sorted base names of the files."""
        return tuple(sorted(self._members))

    def size(self, name: str) -> int:
        """Return the unpacked size of a file in bytes, as the archive declares it."""
        return self._find(name).size

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return a whole file; one that is larger than `max_bytes` is a `FormatError`."""
        member = self._find(name)
        if member.size > max_bytes:
            raise self._too_large(name, member.size, max_bytes)
        return b"".join(self._unpack(member))

    def open(self, name: str) -> BinaryIO:
        """Unpack a file into a nameless temporary one, which vanishes when it is closed."""
        member = self._find(name)
        if member.size <= IN_MEMORY:
            return io.BytesIO(b"".join(self._unpack(member)))
        folder = Path(tempfile.gettempdir())
        stream = cast(BinaryIO, tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 (returned open)
        try:
            for chunk in self._unpack(member):
                try:
                    stream.write(chunk)
                except OSError as error:
                    raise write_error(error, folder / "unpacked model file") from error
            stream.seek(0)
        except BaseException:
            with contextlib.suppress(OSError):
                stream.close()
            raise
        return stream

    def local_path(self, name: str) -> Path | None:
        """Return None: the file is packed."""
        self._find(name)
        return None

    def _unpack(self, member: Member) -> Iterator[bytes]:
        """Yield exactly the declared bytes of a member, or refuse it."""
        count = 0
        chunks = self._chunks(member)
        while True:
            with self._reading():
                chunk = next(chunks, None)
            if chunk is None:
                break
            count += len(chunk)
            if count > member.size:
                break
            yield chunk
        if count != member.size:
            found = "more" if count > member.size else f"{count}"
            raise self._error(
                f"declares {member.size} bytes for '{shown(member.name, 60)}' but holds {found}",
                "download it again",
            )

    def close(self) -> None:
        """Let go of the archive; streams that were opened live on."""
        self._file.close()


class _Bounded(io.RawIOBase):
    """A view of a file that refuses single reads beyond a size (zipfile reads what it is told)."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._wrapped = file
        self._most = most

    def read(self, size: int = -1) -> bytes:
        if size < 0:  # zipfile reads the last 64 KiB in this way
            size = self._most + 1
            data = self._wrapped.read(size)
            if len(data) == size:
                raise ValueError(f"more than {self._most} bytes after its members")
            return data
        if size > self._most:
            raise ValueError(f"a directory of {size} bytes, allowed are {self._most}")
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
    """Show the members of a zip.

    Args:
        path: the zip.
        limits: sizes allowed.
        stream: the open zip, if it lies inside another file; `path` is then its name.
    """

    kind = "zip"

    def __init__(
        self, path: Path | str, *, limits: Limits = LIMITS, stream: BinaryIO | None = None
    ) -> None:
        super().__init__(path, limits, stream)

    def _list(self) -> None:
        bounded = _Bounded(self._file, max(self._limits.archive_directory_bytes, 2 * CHUNK))
        self._zip = zipfile.ZipFile(cast(BinaryIO, bounded))
        infos = self._zip.infolist()
        if len(infos) > self._limits.archive_members:
            raise self._error(
                f"has {len(infos)} members, allowed are {self._limits.archive_members}"
            )
        for info in infos:
            # zipfile cuts `filename` at a NUL; the original tells.
            name = info.orig_filename
            self._check_member(info, name)
            self._add(Member(name, info.file_size, info=info), folder=name.endswith("/"))
        self._check_overlap(infos)

    def _check_member(self, info: zipfile.ZipInfo, name: str) -> None:
        if info.flag_bits & 0x2041:  # encrypted, strongly encrypted, masked directory
            raise self._error(f"has the encrypted member '{shown(name, 80)}'", "unlock it first")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise self._error(f"has the link or device '{shown(name, 80)}'")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._error(
                f"packs '{shown(name, 80)}' by method {info.compress_type}", "re-pack it by deflate"
            )

    def _check_overlap(self, infos: list[zipfile.ZipInfo]) -> None:
        """Refuse members that share bytes: the way to pack petabytes into a few (CVE-2024-0450)."""
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

    def _chunks(self, member: Member) -> Iterator[bytes]:
        if member.info is None:
            return
        with self._zip.open(member.info) as stream:
            while chunk := stream.read(CHUNK):
                yield chunk

    def close(self) -> None:
        """Let go of the zip; streams that were opened live on."""
        if hasattr(self, "_zip"):
            self._zip.close()
        super().close()

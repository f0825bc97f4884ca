"""The members of a zip as a source."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from elmore._messages import shown
from elmore.formats.archives import CHUNK, ArchiveSource, Member
from elmore.limits import LIMITS, Limits

__all__ = ["ZipSource"]


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

"""The members of a tar, plain or compressed, as a source."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from elmore.base.messages import shown
from elmore.errors import FormatError
from elmore.formats.containers.archives import CHUNK, IN_MEMORY, ArchiveSource, Member
from elmore.limits import LIMITS

__all__ = ["TarSource"]

_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_EXTENSIONS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_MAX_EXTENSIONS = 16  # before one member; writers need up to four
# xz files of the strongest preset need 65 MiB; a header may ask for 4 GiB.
_XZ_MEMORY = 256 << 20


class _XzStream:
    """Decompress xz in bounded memory; `lzma.LZMAFile` has no limit."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decompressor = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)

    def read(self, size: int) -> bytes:
        while not self._decompressor.eof:
            data = b""
            if self._decompressor.needs_input:
                data = self._file.read(CHUNK)
                if not data:
                    raise EOFError("the compressed data ends too early")
            if plain := self._decompressor.decompress(data, size):
                return plain
        return b""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class TarSource(ArchiveSource):
    """The members of a tar: plain, or compressed by gzip, bzip2 or xz.

    `tarfile` parses each header; the walk over them and the extended headers are ours. Its own
    walk ends silently at a broken header, and a pax header of 60 kB keeps it busy for ten seconds
    in Python releases that we support (CVE-2024-6232).
    """

    kind = "tar"

    def __init__(self, path: Path) -> None:
        # Small members are kept: reading one later means decompressing from the start again.
        self._kept: dict[int, bytes] = {}
        self._kept_bytes = 0
        super().__init__(path)

    # The stream: decompressed bytes, in order, counted.

    def _start(self) -> None:
        self._file.seek(0)
        magic = self._file.read(6)
        self._file.seek(0)
        self._position = 0
        self._plain = False
        if magic.startswith(b"\x1f\x8b"):
            self._stream: _Readable = gzip.GzipFile(fileobj=self._file)
        elif magic.startswith(b"BZh"):
            self._stream = bz2.BZ2File(self._file)
        elif magic == b"\xfd7zXZ\0":
            self._stream = _XzStream(self._file)
        else:
            self._plain = True
            self._stream = self._file

    def _take(self, size: int) -> bytes:
        """Return up to `size` bytes of the stream, fewer only at its end."""
        parts: list[bytes] = []
        while size and (part := self._stream.read(min(size, CHUNK))):
            parts.append(part)
            size -= len(part)
            self._position += len(part)
        # Counted where every byte passes, because a header may declare less than there
        # is.
        self._check_total(self._position)
        return b"".join(parts)

    def _skip(self, size: int) -> None:
        if self._plain:
            self._position += size
            if self._position > self._archive_size:
                raise self._error("ends within a member", "download it again")
            self._file.seek(self._position)
            return
        while size:
            part = self._take(min(size, CHUNK))
            if not part:
                raise self._error("ends within a member", "download it again")
            size -= len(part)

    def _chunks(self, member: Member) -> Iterator[bytes]:
        if member.offset in self._kept:
            yield self._kept[member.offset]
            return
        self._start()
        self._skip(member.offset)
        left = member.size
        while left and (chunk := self._take(min(left, CHUNK))):
            left -= len(chunk)
            yield chunk

    # The headers.

    def _list(self) -> None:
        self._start()
        extra: dict[str, str] = {}
        extensions = 0
        while (header := self._next_header()) is not None:
            if header.type in _EXTENSIONS:
                extensions += 1
                if extensions > _MAX_EXTENSIONS:
                    raise self._error(f"has over {_MAX_EXTENSIONS} headers before one member")
                extra |= self._extension(header.type, header.size)
            else:
                self._list_member(header, extra)
                extra, extensions = {}, 0
        if not self._position:
            raise self._error("is empty", "download it again")
        if not self._plain:
            while self._take(CHUNK):  # the checksum of the compression is at its very end
                pass

    def _next_header(self) -> tarfile.TarInfo | None:
        block = self._take(tarfile.BLOCKSIZE)
        # A block of zeros ends a tar; some writers leave it out.
        if not block or block.count(0) == tarfile.BLOCKSIZE:
            return None
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError:
            if self._position <= tarfile.BLOCKSIZE:
                raise FormatError(
                    f"'{self.name}' is neither a zip nor a tar; pass a model folder, zip or tar"
                ) from None
            raise self._error(
                f"has a broken header at byte {self._position}", "download it again"
            ) from None
        if header.size < 0:
            raise self._error(f"gives '{shown(header.name, 60)}' a broken size")
        return header

    def _list_member(self, header: tarfile.TarInfo, extra: dict[str, str]) -> None:
        name, size = extra.get("path") or header.name, header.size
        if "size" in extra:
            if not re.fullmatch(r"\d{1,18}", extra["size"], re.ASCII):
                raise self._error(f"gives '{shown(name, 60)}' a broken size")
            size = int(extra["size"])
        if not header.isdir() and header.type not in _FILES:
            raise self._error(f"has the link, device or sparse file '{shown(name, 80)}'")
        if header.isdir() and size:
            raise self._error(f"gives the folder '{shown(name, 80)}' a size")
        offset = self._position
        self._add(Member(name, size, offset), folder=header.isdir())
        # Bounded, because an archive may have ten thousand small members.
        if not self._plain and size <= IN_MEMORY and self._kept_bytes + size <= 32 * IN_MEMORY:
            data = self._take(size)
            if len(data) != size:
                raise self._error("ends within a member", "download it again")
            self._kept[offset] = data
            self._kept_bytes += size
        else:
            self._skip(size)
        # The very last padding may be missing in tars that were cut by hand; harmless.
        self._take(-size % tarfile.BLOCKSIZE)

    def _extension(self, kind: bytes, size: int) -> dict[str, str]:
        """Read a GNU long name or the records of a pax header."""
        if size > LIMITS.archive_header_bytes:
            raise self._error(
                f"has a header of {size} bytes, allowed are {LIMITS.archive_header_bytes}"
            )
        data = self._take(size)
        self._take(-size % tarfile.BLOCKSIZE)
        if len(data) != size:
            raise self._error("ends within a header", "download it again")
        if kind == tarfile.GNUTYPE_LONGNAME:
            return {"path": data.rstrip(b"\0").decode("utf-8", "surrogateescape")}
        if kind == tarfile.GNUTYPE_LONGLINK:
            return {}  # the target of a link, which is refused anyway
        records = self._pax_records(data)
        if any(key.startswith("GNU.sparse") for key in records):
            raise self._error("has a sparse file")
        # It would apply to all members that follow. No writer needs that, so it is refused.
        if kind == tarfile.XGLTYPE and ("path" in records or "size" in records):
            raise self._error("sets a name or size for all members")
        return {key: records[key] for key in ("path", "size") if key in records}

    def _pax_records(self, data: bytes) -> dict[str, str]:
        """Split "LENGTH KEY=VALUE\\n" records; LENGTH counts itself."""
        records: dict[str, str] = {}
        while data.strip(b"\0"):
            digits = data[:20].split(b" ", 1)[0]
            length = int(digits) if re.fullmatch(rb"\d{1,6}", digits) else 0
            record = data[:length]
            key, equals, value = record[len(digits) + 1 :].partition(b"=")
            if not equals or len(record) != length or not value.endswith(b"\n"):
                raise self._error("has a broken pax header", "download it again")
            # Only these two are used; the others may hold any bytes.
            name = key.decode("utf-8", "replace")
            records[name] = value[:-1].decode("utf-8", "surrogateescape")
            data = data[length:]
        return records

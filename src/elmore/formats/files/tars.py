"""The members of a tar, plain or packed, as a source."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from elmore._messages import shown
from elmore.errors import FormatError
from elmore.formats.files.archives import CHUNK, IN_MEMORY, ArchiveSource, Member
from elmore.limits import LIMITS, Limits

__all__ = ["TarSource"]

_BLOCK = 512
# xz files of the strongest preset need 65 MiB; a header may ask for 4 GiB.
_XZ_MEMORY = 256 << 20


class _XzStream:
    """Unpack xz within bounded memory, which `lzma.LZMAFile` cannot."""

    def __init__(self, file: BinaryIO) -> None:
        self._packed = file
        self._unpacker = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)

    def read(self, size: int) -> bytes:
        while not self._unpacker.eof:
            data = b""
            if self._unpacker.needs_input:
                data = self._packed.read(CHUNK)
                if not data:
                    raise EOFError("the packed data ends too early")
            if unpacked := self._unpacker.decompress(data, size):
                return unpacked
        return b""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class TarSource(ArchiveSource):
    """Show the members of a tar: plain or packed by gzip, bzip2 or xz.

    The headers are read here, not by `tarfile`, which takes sizes in headers at their word
    (CVE-2025-8194, CVE-2024-6232) and ends silently at a broken one.

    Args:
        path: the tar.
        limits: sizes allowed.
    """

    kind = "tar"

    def __init__(self, path: Path, *, limits: Limits = LIMITS) -> None:
        # Small members are kept from the first pass: each later one costs unpacking from the start.
        self._kept: dict[int, bytes] = {}
        self._kept_bytes = 0
        super().__init__(path, limits)

    # The stream: unpacked bytes, in order, counted.

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
        self._check_total(self._position)
        return b"".join(parts)

    def _skip(self, size: int) -> None:
        if self._plain:
            self._position += size
            if self._position > self._packed:
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
        headers = 0
        while header := self._take(_BLOCK):
            if header.count(0) == _BLOCK:
                break
            headers += 1
            if headers > 4 * self._limits.archive_members:
                raise self._error("has more headers than allowed")
            self._check_header(header, first=headers == 1)
            kind = header[156:157]
            size = self._number(header[124:136])
            if kind in (b"x", b"g", b"L", b"K"):
                extra |= self._extension(kind, size)
                continue
            self._list_member(header, kind, size, extra)
            extra = {}
        else:
            if not headers:
                raise self._error("is empty", "download it again")
        if not self._plain:
            while self._take(CHUNK):  # the checksum of the packing stands at its very end
                pass

    def _list_member(self, header: bytes, kind: bytes, size: int, extra: dict[str, str]) -> None:
        name = extra.get("path") or self._name_in(header)
        if "size" in extra:
            if not re.fullmatch(r"\d{1,18}", extra["size"], re.ASCII):
                raise self._error(f"gives '{shown(name, 60)}' a broken size")
            size = int(extra["size"])
        folder = kind == b"5" or (kind == b"\0" and name.endswith("/"))
        if not folder and kind not in (b"0", b"\0", b"7"):
            raise self._error(f"has the link, device or sparse file '{shown(name, 80)}'")
        if folder and size:
            raise self._error(f"gives the folder '{shown(name, 80)}' a size")
        offset = self._position
        self._add(Member(name, size, offset), folder=folder)
        padding = -size % _BLOCK
        if not self._plain and size <= IN_MEMORY and self._kept_bytes + size <= 32 * IN_MEMORY:
            data = self._take(size)
            if len(data) != size:
                raise self._error("ends within a member", "download it again")
            self._kept[offset] = data
            self._kept_bytes += size
        else:
            self._skip(size)
        # The very last padding may be missing in tars that were cut by hand; harmless.
        self._take(padding)

    def _check_header(self, header: bytes, *, first: bool) -> None:
        good = False
        if len(header) == _BLOCK:
            blanked = header[:148] + b" " * 8 + header[156:]
            with contextlib.suppress(FormatError):
                found, wanted = self._number(header[148:156]), sum(blanked)
                # Some old tars summed signed characters.
                good = found == wanted or found == wanted - 256 * sum(map((127).__lt__, blanked))
        if not good and first:
            raise FormatError(
                f"'{self._name}' is neither a zip nor a tar; pass a model folder, zip or tar"
            )
        if not good:
            raise self._error(f"has a broken header at byte {self._position}", "download it again")

    def _number(self, field: bytes) -> int:
        """Read an octal field, or GNU's base 256 for large sizes."""
        if field[0] == 0x80:
            return int.from_bytes(field[1:], "big")
        text = field.split(b"\0", 1)[0].strip(b" ")
        if not re.fullmatch(rb"[0-7]*", text):
            raise self._error("has a header with a broken number", "download it again")
        return int(text or b"0", 8)

    def _name_in(self, header: bytes) -> str:
        name = header[:100].split(b"\0", 1)[0]
        if header[257:263] == b"ustar\0" and header[345] != 0:
            name = header[345:500].split(b"\0", 1)[0] + b"/" + name
        return name.decode("utf-8", "surrogateescape")

    def _extension(self, kind: bytes, size: int) -> dict[str, str]:
        """Read a GNU long name or the records of a pax header."""
        if size > self._limits.archive_header_bytes:
            raise self._error(
                f"has a header of {size} bytes, allowed are {self._limits.archive_header_bytes}"
            )
        data = self._take(size)
        self._take(-size % _BLOCK)
        if len(data) != size:
            raise self._error("ends within a header", "download it again")
        if kind == b"L":
            return {"path": data.rstrip(b"\0").decode("utf-8", "surrogateescape")}
        if kind == b"K":
            return {}  # the target of a link, which is refused anyway
        records = self._pax_records(data)
        if any(key.startswith("GNU.sparse") for key in records):
            raise self._error("has a sparse file")
        if kind == b"g" and ("path" in records or "size" in records):
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

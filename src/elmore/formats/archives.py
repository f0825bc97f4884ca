"""Show the files of a model, wherever they lie, through one read-only view.

A `Source` is a folder, a zip, a tar or a handful of named files; format readers see base names
only. Archives are never extracted: members are read one by one, and the bytes are counted while
they are unpacked, because headers lie.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import re
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, Self, cast, runtime_checkable

from elmore._io import open_checked, shown, write_error
from elmore.errors import FormatError
from elmore.limits import LIMITS, Limits

__all__ = ["FilesSource", "FolderSource", "Source", "TarSource", "ZipSource", "open_source"]

_CHUNK = 1 << 18
_IN_MEMORY = 1 << 20  # members up to this size are not worth a temporary file
_BLOCK = 512
# xz files of the strongest preset need 65 MiB; a header may ask for 4 GiB.
_XZ_MEMORY = 256 << 20


@runtime_checkable
class Source(Protocol):
    """The read-only view of a model's files that every format reader uses."""

    @property
    def name(self) -> str:
        """How messages call this source."""

    def names(self) -> tuple[str, ...]:
        """Return the sorted base names of the files.

        A link, FIFO or ambiguous name is listed too: reading it tells what is wrong with it.
        """

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return a whole file; one that is larger than `max_bytes` is a `FormatError`."""

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading and seeking; the caller closes it."""

    def local_path(self, name: str) -> Path | None:
        """Return where the file lies on the disk, or None if it is packed."""

    def close(self) -> None:
        """Let go of all files."""

    def __enter__(self) -> Self:
        """Return the source itself."""

    def __exit__(self, *details: object) -> None:
        """Close the source."""


class _Base:
    """What all sources share."""

    def __init__(self, name: str) -> None:
        self._name = shown(name, 100)

    @property
    def name(self) -> str:
        """How messages call this source."""
        return self._name

    def close(self) -> None:
        """Let go of all files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def _missing(self, name: str) -> FormatError:
        return FormatError(
            f"'{self._name}' has no file '{shown(name, 60)}'; check that the model is complete"
        )

    def _too_large(self, name: str, size: int, allowed: int) -> FormatError:
        return FormatError(
            f"'{shown(name, 60)}' in '{self._name}' has {size} bytes, allowed are {allowed}; "
            "check that it is the right file"
        )

    def _ambiguous(self, first: str, second: str) -> FormatError:
        return FormatError(
            f"'{self._name}' has '{shown(first, 60)}' and '{shown(second, 60)}' of one name; "
            "keep one model only"
        )


# --------------------------------------------------------------------------- plain files


class _PlainSource(_Base):
    """Files on the disk, each looked up by `_find`."""

    def _find(self, name: str) -> tuple[Path, bool]:
        """Return the path of a file and whether opening it may follow a link."""
        raise NotImplementedError

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        with self.open(name) as stream:
            return os.fstat(stream.fileno()).st_size

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return a whole file; one that is larger than `max_bytes` is a `FormatError`."""
        with self.open(name) as stream:
            size = os.fstat(stream.fileno()).st_size
            data = b"" if size > max_bytes else stream.read(max_bytes + 1)
        if max(size, len(data)) > max_bytes:
            raise self._too_large(name, max(size, len(data)), max_bytes)
        return data

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading and seeking; the caller closes it."""
        path, follow = self._find(name)
        return open_checked(path, what="model file", follow=follow)

    def local_path(self, name: str) -> Path | None:
        """Return where the file lies on the disk."""
        path, follow = self._find(name)
        open_checked(path, what="model file", follow=follow).close()
        return path


class FilesSource(_PlainSource):
    """Show files that the user named one by one.

    Args:
        files: base name that the readers ask for → the file itself.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = {name: Path(path) for name, path in files.items()}
        super().__init__(", ".join(str(path) for path in self._files.values()))

    def names(self) -> tuple[str, ...]:
        """Return the sorted base names of the files."""
        return tuple(sorted(self._files))

    def _find(self, name: str) -> tuple[Path, bool]:
        if name not in self._files:
            raise self._missing(name)
        return self._files[name], True


class FolderSource(_PlainSource):
    """Show the files of a folder and of the folders directly in it.

    A name in the folder itself hides the same name further down.

    Args:
        path: the folder.
        follow_links: allow links to regular files outside, as in a Hugging Face cache, whose
            folders link to `../../blobs`. Without it a link may not leave the folder.
        limits: how many files are allowed.
    """

    def __init__(self, path: Path, *, follow_links: bool = False, limits: Limits = LIMITS) -> None:
        super().__init__(str(path))
        self._path = Path(path)
        self._follow = follow_links
        self._found: dict[str, list[Path]] = {}
        try:
            self._root = self._path.resolve(strict=True)
            self._scan(limits.archive_members)
        except (OSError, RuntimeError, ValueError) as error:
            if isinstance(error, FormatError):
                raise
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise FormatError(
                f"folder '{self._name}' cannot be read: {shown(reason, 60)}; check the path"
            ) from error

    def _scan(self, most: int) -> None:
        below: dict[str, list[Path]] = {}
        folders: list[str] = []
        count = 0
        with os.scandir(self._path) as entries:
            for entry in entries:
                count += 1
                self._check_count(count, most)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                else:
                    self._found[entry.name] = [self._path / entry.name]
        for folder in sorted(folders):
            # A folder we may not list cannot hold what we need; a later miss says so.
            with (
                contextlib.suppress(OSError),
                os.scandir(self._path / folder) as entries,
            ):
                for entry in entries:
                    count += 1
                    self._check_count(count, most)
                    if not entry.is_dir(follow_symlinks=False):
                        below.setdefault(entry.name, []).append(self._path / folder / entry.name)
        for name, paths in below.items():
            self._found.setdefault(name, paths)

    def _check_count(self, count: int, most: int) -> None:
        if count > most:
            raise FormatError(
                f"folder '{self._name}' holds more than the {most} files allowed; "
                "pass the folder of one model"
            )

    def names(self) -> tuple[str, ...]:
        """Return the sorted base names of the files."""
        return tuple(sorted(self._found))

    def _find(self, name: str) -> tuple[Path, bool]:
        paths = self._found.get(name)
        if not paths:
            raise self._missing(name)
        if len(paths) > 1:
            first, second = (str(path.relative_to(self._path)) for path in sorted(paths)[:2])
            raise self._ambiguous(first, second)
        path = paths[0]
        if self._follow or not path.is_symlink():
            return path, self._follow
        try:
            target = path.resolve(strict=True)
        except (OSError, RuntimeError):
            target = None
        if target is None or not target.is_relative_to(self._root):
            raise FormatError(
                f"'{shown(name, 60)}' in '{self._name}' is a link that leaves the folder; "
                "put the file itself there"
            )
        return target, False


# --------------------------------------------------------------------------- archives


@dataclass(frozen=True)
class _Member:
    """One file in an archive."""

    name: str  # with its folders
    size: int
    offset: int = 0  # of the data in the unpacked tar
    info: zipfile.ZipInfo | None = None


class _ArchiveSource(_Base):
    """What zips and tars share: checked names, limits, unpacking one member."""

    kind = "archive"

    def __init__(self, path: Path, limits: Limits) -> None:
        super().__init__(str(path))
        self._limits = limits
        self._members: dict[str, list[_Member]] = {}
        self._full: set[str] = set()
        self._total = 0
        self._file = open_checked(Path(path), what=self.kind)
        self._packed = os.fstat(self._file.fileno()).st_size
        try:
            with self._reading():
                self._list()
        except BaseException:
            self.close()
            raise

    def _list(self) -> None:
        """Fill `_members` through `_add`."""
        raise NotImplementedError

    def _chunks(self, member: _Member) -> Iterator[bytes]:
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

    def _add(self, member: _Member, *, folder: bool) -> None:
        """Take a listed member, counting names and bytes."""
        clean = self._check_name(member.name)
        if clean in self._full:
            raise self._error(f"has the member '{shown(clean, 80)}' twice")
        self._full.add(clean)
        self._count_member()
        if member.size < 0:
            raise self._error(f"gives '{shown(clean, 80)}' a negative size")
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

    def _find(self, name: str) -> _Member:
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
        if member.size <= _IN_MEMORY:
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

    def _unpack(self, member: _Member) -> Iterator[bytes]:
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


class ZipSource(_ArchiveSource):
    """Show the members of a zip.

    Args:
        path: the zip.
        limits: sizes allowed.
    """

    kind = "zip"

    def __init__(self, path: Path, *, limits: Limits = LIMITS) -> None:
        super().__init__(path, limits)

    def _list(self) -> None:
        bounded = _Bounded(self._file, max(self._limits.archive_directory_bytes, 2 * _CHUNK))
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
            self._add(_Member(name, info.file_size, info=info), folder=name.endswith("/"))
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

    def _chunks(self, member: _Member) -> Iterator[bytes]:
        if member.info is None:
            return
        with self._zip.open(member.info) as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk

    def close(self) -> None:
        """Let go of the zip; streams that were opened live on."""
        if hasattr(self, "_zip"):
            self._zip.close()
        super().close()


class _XzStream:
    """Unpack xz within bounded memory, which `lzma.LZMAFile` cannot."""

    def __init__(self, file: BinaryIO) -> None:
        self._packed = file
        self._unpacker = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)

    def read(self, size: int) -> bytes:
        while not self._unpacker.eof:
            data = b""
            if self._unpacker.needs_input:
                data = self._packed.read(_CHUNK)
                if not data:
                    raise EOFError("the packed data ends too early")
            if unpacked := self._unpacker.decompress(data, size):
                return unpacked
        return b""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class TarSource(_ArchiveSource):
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
        while size and (part := self._stream.read(min(size, _CHUNK))):
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
            part = self._take(min(size, _CHUNK))
            if not part:
                raise self._error("ends within a member", "download it again")
            size -= len(part)

    def _chunks(self, member: _Member) -> Iterator[bytes]:
        if member.offset in self._kept:
            yield self._kept[member.offset]
            return
        self._start()
        self._skip(member.offset)
        left = member.size
        while left and (chunk := self._take(min(left, _CHUNK))):
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
            while self._take(_CHUNK):  # the checksum of the packing stands at its very end
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
        self._add(_Member(name, size, offset), folder=folder)
        padding = -size % _BLOCK
        if not self._plain and size <= _IN_MEMORY and self._kept_bytes + size <= 32 * _IN_MEMORY:
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


def open_source(path: Path, *, follow_links: bool = False, limits: Limits = LIMITS) -> Source:
    """Open a folder, zip or tar as a source.

    Args:
        path: what the user named.
        follow_links: see `FolderSource`.
        limits: sizes allowed.

    Raises:
        FormatError: missing, neither of the three, or broken.
    """
    path = Path(path)
    if path.is_dir():
        return FolderSource(path, follow_links=follow_links, limits=limits)
    with open_checked(path, what="model") as stream:
        head = stream.read(8)
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return ZipSource(path, limits=limits)
    if head == b"\x89HDF\r\n\x1a\n":
        raise FormatError(
            f"'{shown(path, 120)}' is an HDF5 file without its options; pass (options, weights)"
        )
    return TarSource(path, limits=limits)

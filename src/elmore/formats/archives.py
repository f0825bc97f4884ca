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
from elmore.formats.sources import NamedSource
from elmore.limits import Limits

__all__ = ["CHUNK", "IN_MEMORY", "ArchiveSource", "Member"]

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

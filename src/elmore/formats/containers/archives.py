"""Zips and tars that hold the files of a model.

Archives are never extracted: a member's name is only a key, wherever it seems to lead. Members are
decompressed one by one into memory or a temporary file that has no name.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, cast

from elmore.base.atomic import write_error
from elmore.base.messages import shown
from elmore.errors import ElmoreError, FormatError
from elmore.formats.containers.sources import Source, SourceFile
from elmore.limits import LIMITS

_CHUNK = 1 << 18  # bytes read at a time
_HEADER = 1 << 13  # bytes of a tar's header at most
_IN_MEMORY = 1 << 26  # larger members are decompressed into a temporary file
# Name with its folders, size, and what opens it.
_Member = tuple[str, int, Callable[[], IO[bytes] | None]]


def zip_source(stream: BinaryIO, name: str) -> Source:
    """The members of a zip, which is closed with the source."""
    with _reading(name, stream.close):
        archive = zipfile.ZipFile(stream)
        infos = [info for info in archive.infolist() if not info.is_dir()]
        _check_ratio(name, _size(stream), sum(info.file_size for info in infos))
    members = [(info.filename, info.file_size, partial(archive.open, info)) for info in infos]
    return _source(name, members, stream.close)


def tar_source(stream: BinaryIO, name: str) -> Source:
    """The members of a tar, plain or compressed by gzip; it is closed with the source."""
    compressed = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    if compressed:
        # Members are read in any order, gzip only forward: continue with a decompressed copy.
        with stream as packed:
            check = partial(_check_ratio, name, _size(packed))
            stream = _copied(name, partial(gzip.GzipFile, fileobj=packed), check)
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

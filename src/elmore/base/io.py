"""Open and read files so that a hostile or failing disk does no harm.

Regular files only, memory bounded by one line, compression known by a file's first bytes.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import errno
import gzip
import hashlib
import io
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, cast

from elmore.base.messages import shown
from elmore.base.optional import require
from elmore.errors import FormatError, InputError

# What to do with a line that is not UTF-8: raise, put U+FFFD, or leave the line out.
Errors: TypeAlias = Literal["strict", "replace", "skip"]

_GZIP, _BZIP2, _XZ, _ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
# What follows the level in bzip2: the mark of a block, or of the end where there is no block.
_BZIP2_NEXT = (b"1AY&SY", b"\x17rE8P\x90")


def open_checked(path: Path, *, what: str, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading; refuse everything else.

    Args:
        path: the file.
        what: its role for messages, such as "options file".
        follow: whether the last component may be a symbolic link: yes for a path that the user
            named, no for a name found inside a folder that may be hostile.

    Raises:
        FormatError: missing, unreadable, a folder, link, FIFO, socket or device.
    """
    label = f"{shown(what, 60)} '{shown(path, 140)}'"
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    # O_NONBLOCK: opening a FIFO without a writer would wait forever.
    flags |= getattr(os, "O_NONBLOCK", 0)
    if not follow:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    try:
        # Checked before opening, because a device may act when it is opened; and checked again on
        # the open descriptor, because the name may have changed in between.
        _refuse_special(os.stat(path, follow_symlinks=follow), label)
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise FormatError(f"{label} does not exist; check the path") from None
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ELOOP:
            raise FormatError(f"{label} is a symbolic link; a regular file is needed") from None
        reason = getattr(error, "strerror", None) or str(error)
        raise FormatError(
            f"{label} cannot be read: {shown(reason.lower(), 60)}; check the path and its rights"
        ) from error
    try:
        _refuse_special(os.fstat(descriptor), label)
        # With the path for its name, for libraries that open files themselves.
        return open(path, "rb", opener=lambda *_: descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_special(status: os.stat_result, label: str) -> None:
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        link = "a symbolic link" if stat.S_ISLNK(mode) else "not a file"
        kind = "a folder" if stat.S_ISDIR(mode) else link
        raise FormatError(f"{label} is {kind}; a regular file is needed")


@contextlib.contextmanager
def open_text(path: Path, *, what: str) -> Iterator[BinaryIO]:
    """Open a text file and decompress it (gz, bz2, xz, zst; known by its first bytes).

    Raises:
        FormatError: as `open_checked`.
        InputError: the compressed data is damaged; raised inside the block too.
        MissingExtra: zst without the package that reads it.
    """
    with open_checked(path, what=what) as raw, decompressed(raw, what=str(path)) as stream:
        yield stream


@contextlib.contextmanager
def decompressed(raw: BinaryIO, *, what: str) -> Iterator[BinaryIO]:
    """Do what `open_text` does with a stream at its start; `what` is its name for messages."""
    with _decompressor(raw, what) as stream:
        try:
            yield stream
        except Exception as error:
            if stream is raw or not _is_damage(error):
                raise
            raise InputError(
                f"the compressed data is damaged: {shown(error, 80)}; copy it again",
                file=shown(what, 140),
            ) from error


def _decompressor(raw: BinaryIO, what: str) -> contextlib.AbstractContextManager[BinaryIO]:
    head = raw.read(10)
    raw.seek(0)
    stream: Any = contextlib.nullcontext(raw)
    if head.startswith(_GZIP):
        stream = gzip.GzipFile(fileobj=raw)
    # "BZh" alone could be the first word of a text.
    elif head.startswith(_BZIP2) and head[4:] in _BZIP2_NEXT:
        stream = bz2.BZ2File(raw)
    elif head.startswith(_XZ):
        stream = lzma.LZMAFile(raw)  # noqa: SIM115 (the caller enters it)
    elif head.startswith(_ZSTD):
        zstandard = require("zstandard", "train", f"reading '{shown(what, 140)}'")
        reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        stream = io.BufferedReader(reader, 1 << 17)
    return cast(contextlib.AbstractContextManager[BinaryIO], stream)


def _is_damage(error: Exception) -> bool:
    """Whether a decompressor raised it; errors of the disk have a number."""
    if isinstance(error, OSError):
        return error.errno is None
    zstandard = type(error).__module__.partition(".")[0] == "zstandard"
    return zstandard or isinstance(error, (EOFError, zlib.error, lzma.LZMAError))


def read_lines(
    stream: BinaryIO,
    *,
    what: str,
    max_line: int,
    errors: Errors | None = None,
    on_invalid: Callable[[int], object] | None = None,
) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a UTF-8 text with their numbers, in memory bounded by one line.

    Only "\n" ends a line; one "\r" before it is dropped; a byte order mark is dropped at the
    start of the file only. A last line without "\n" counts.

    Args:
        stream: read from its present position, which is taken as the start of the file.
        what: name of the file for messages.
        max_line: the maximum number of bytes of a line, without its ending.
        errors: what to do with invalid UTF-8; the number of a line that is left out is missing
            from the result. None raises too, with a message that does not mention --errors.
        on_invalid: called with the number of each line that was changed or left out.

    Yields:
        (line number from 1, text).

    Raises:
        InputError: invalid UTF-8 (strict, None), or a line over max_line.
    """
    readline = stream.readline
    longest = max_line + 2  # "\r\n"
    number = 0
    dropped = 0
    while data := readline(longest + (3 if number == 0 else 0)):  # 3: a byte order mark
        number += 1
        dropped = 0
        if number == 1 and data.startswith(codecs.BOM_UTF8):
            dropped = len(codecs.BOM_UTF8)
            data = data[dropped:]
        if data.endswith(b"\n"):
            data = data[: -2 if data.endswith(b"\r\n") else -1]
        if len(data) > max_line:
            raise long_line(max_line, what, number)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            if errors in ("strict", None):
                raise invalid_utf8(
                    error.start + dropped, what, number, choice=errors is not None
                ) from None
            if on_invalid is not None:
                on_invalid(number)
            if errors == "skip":
                continue
            text = data.decode("utf-8", "replace")
        yield number, text


def long_line(max_bytes: int, file: str, line: int) -> InputError:
    """The error for a line that is too long."""
    return InputError(
        f"the line is longer than the {max_bytes} bytes allowed; split it into lines",
        file=shown(file, 120),
        line=line,
    )


def invalid_utf8(place: int, file: str, line: int, *, choice: bool) -> InputError:
    """The error for a line that is not UTF-8; `choice`: the user can choose --errors."""
    other = " or pass --errors replace or --errors skip" if choice else ""
    return InputError(
        f"invalid UTF-8 at byte {place} of the line; convert the file to UTF-8{other}",
        file=shown(file, 120),
        line=line,
    )


def sha256_stream(stream: BinaryIO) -> str:
    """Return the SHA-256 of a stream from its start, as lower-case hex."""
    return hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()


def sha256_file(path: Path) -> str:
    """The SHA-256 of a regular file, as lower-case hex."""
    with open_checked(path, what="file") as stream:
        return sha256_stream(stream)

"""Write files and folders completely or not at all, and keep other writers out.

What has its final name is complete and synced. Until then it has the name `.NAME.<random>.partial`
in the same folder; what a killed writer leaves under such a name, the next owner of the folder's
lock removes. A folder that is being replaced is `.NAME.<random>.old` until the new one is there.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from elmore.base.messages import shown
from elmore.errors import ConfigError, ElmoreError

_PARTIAL = re.compile(r"\..+\.[0-9a-f]{12}\.partial")
_ASIDE = re.compile(r"\.(.+)\.[0-9a-f]{12}\.old")  # a folder while `atomic_folder` replaces it
_NO_SPACE = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
# Errors of a descriptor, not of a name: inside the body of an atomic writer they are ours.
_FAILED_WRITE = _NO_SPACE | {errno.EIO, errno.EROFS}
_LOGGER = logging.getLogger(__name__)


def write_error(error: OSError, path: Path) -> ElmoreError:
    """Turn a failed write into one line that names the path and the space left."""
    label = f"cannot write '{shown(path, 120)}'"
    # Of a file in an unfinished folder: the folder has no name yet, and that is not why it failed.
    about_names = not isinstance(error, PermissionError) and error.errno not in _FAILED_WRITE
    if about_names and not os.path.isdir(path.parent):
        # By what is there: systems differ in the error for a path below a file.
        there = next(parent for parent in path.parents if os.path.lexists(parent))
        if os.path.isdir(there):
            return ElmoreError(f"{label}: its folder does not exist; create it first")
        return ConfigError(
            f"{label}: '{shown(there, 120)}' is a file, not a folder; choose another name"
        )
    if error.errno in _NO_SPACE:
        fix = "free some space or raise the file-size limit, or choose another folder"
    else:
        # Windows renames nothing onto a file that is open.
        fix = "check the folder's rights, close programs that have it open, or choose another"
    left = ""
    with contextlib.suppress(OSError):
        left = f", {shutil.disk_usage(path.parent).free} bytes free there"
    reason = (error.strerror or str(error)).lower()
    return ElmoreError(f"{label}: {shown(reason, 50)}{left}; {fix}")


@contextlib.contextmanager
def atomic_file(path: Path, *, overwrite: bool = False) -> Iterator[BinaryIO]:
    """Write a file so that its name holds the complete new content or the old one.

    Yields:
        A binary file for writing and reading back, under a temporary name in the same folder. When
        the block ends well it is synced and renamed; when it does not, it is deleted and the old
        file stays.

    Raises:
        ConfigError: the file exists and overwrite is false.
        ElmoreError: the disk refused; names the path and the bytes free.
    """
    with atomic_path(path, overwrite=overwrite) as temporary:
        stream = open(temporary, "w+b")  # noqa: SIM115 (closed below, in two ways)
        try:
            yield stream
            stream.close()
        finally:
            # After a failed write, closing tries to write the rest once more and fails again.
            with contextlib.suppress(OSError):
                stream.close()


@contextlib.contextmanager
def atomic_path(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Do what `atomic_file` does for libraries that open files by name (h5py).

    Yields:
        The name of an empty temporary file in the same folder, to be opened and closed again.
    """
    path = Path(os.path.abspath(path))
    with _temporary(path) as temporary:
        _check_file(path, overwrite)
        # O_EXCL never follows a planted link; 0o666 leaves the rights to the umask.
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield temporary
        # Once more: somebody else may have made the file while ours was written.
        _check_file(path, overwrite)
        finish_file(temporary, path)


def finish_file(temporary: Path, path: Path) -> None:
    """Sync a file that was written under another name of the same folder, and rename it."""
    _sync(temporary)
    os.replace(temporary, path)
    _sync(path.parent)


@contextlib.contextmanager
def atomic_folder(
    path: Path, *, overwrite: bool = False, looks_ours: Callable[[Path], bool] | None = None
) -> Iterator[Path]:
    """Write a folder so that its name holds the complete new content or the old one.

    Args:
        path: the final name; its parent must exist. An empty folder there is simply used.
        overwrite: whether a filled folder may be replaced.
        looks_ours: decides whether that folder is one of ours; without it none is.

    Yields:
        A temporary folder next to the target, to be filled. When the block ends well it is
        synced and renamed; when it does not, it is deleted and the old folder stays.
    """
    path = Path(os.path.abspath(path))
    with _temporary(path) as temporary:
        check_folder(path, overwrite, looks_ours)
        os.mkdir(temporary)
        yield temporary
        check_folder(path, overwrite, looks_ours)
        for root, _, files in os.walk(temporary, topdown=False):
            for name in ("", *files):
                _sync(Path(root, name))
        # No system replaces a filled folder in one step. A kill between these two leaves the old
        # one under this name; the next owner of the folder's lock puts it back.
        aside = temporary.with_suffix(".old")
        if path.exists():
            os.replace(path, aside)
        try:
            os.replace(temporary, path)
        except BaseException:
            if aside.exists():
                os.replace(aside, path)
            raise
        # If syncing fails, the old one stays aside: a crash may still undo the renames.
        _sync(path.parent)
        _remove(aside)


@contextlib.contextmanager
def locked(
    path: Path, busy: str, *, wait: bool = False, error: type[ElmoreError] = ElmoreError
) -> Iterator[None]:
    """Hold a lock file, so that two processes never write into one folder.

    The operating system holds the lock, so a dead process holds none. What killed writers left in
    the folder of the lock file is removed, before and after.

    Args:
        path: the lock file; it is created, and stays.
        busy: the message if another process holds it.
        wait: log that message and wait, instead of refusing at once.
        error: the type of the error.

    Raises:
        ElmoreError: another process holds it, or the file cannot be created.
    """
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if not wait:
            raise error(busy) from None
        _LOGGER.info("%s", busy)
        lock.acquire()
    except OSError as problem:
        raise write_error(problem, path) from problem
    try:
        _clean(path.parent)
        yield
    finally:
        _clean(path.parent)
        lock.release()


def _clean(folder: Path) -> None:
    for root, folders, files in os.walk(folder):
        for name in filter(_PARTIAL.fullmatch, [*folders, *files]):
            _remove(Path(root, name))
        for aside in filter(None, map(_ASIDE.fullmatch, folders)):
            old, final = Path(root, aside[0]), Path(root, aside[1])
            if os.path.lexists(final):
                _remove(old)
            else:  # the writer was killed between its two renames, so this is the only one
                os.replace(old, final)


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a temporary name; remove what has it after a failure, and explain failed writes."""
    name = os.fsencode(path.name)[:230]  # most file systems allow 255 bytes
    tag = f"{secrets.token_hex(6)}.partial"
    temporary = path.parent / f".{name.decode('utf-8', 'ignore')}.{tag}"
    try:
        yield temporary
    except BaseException as error:
        _remove(temporary)
        if isinstance(error, OSError):
            place = str(error.filename or "")
            ours = place in (str(path), str(path.parent)) or place.startswith(str(temporary))
            # An error with another name is about something else that the block does.
            if ours or (not place and error.errno in _FAILED_WRITE):
                raise write_error(error, path) from error
        raise


def _check_file(path: Path, overwrite: bool) -> None:
    """Refuse targets that may not be replaced."""
    label = f"'{shown(path, 160)}'"
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise ConfigError(f"{label} is a folder; name a file in it")
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        # Renaming over /dev/null, as root, would break the machine.
        raise ConfigError(f"{label} is not a regular file; choose another name")
    if not overwrite:
        raise ConfigError(f"{label} exists; pass overwrite=True (--force) to replace it")


def check_folder(path: Path, overwrite: bool, looks_ours: Callable[[Path], bool] | None) -> None:
    """Refuse targets that may not be replaced."""
    if not os.path.lexists(path):
        return
    label = f"'{shown(path, 140)}'"
    if path.is_symlink():
        raise ConfigError(f"{label} is a symbolic link; name the folder it points to")
    if not path.is_dir():
        raise ConfigError(f"{label} is not a folder; choose another name")
    if next(path.iterdir(), None) is None:
        return
    if looks_ours is None or not looks_ours(path):
        raise ConfigError(
            f"{label} holds files that elmore did not write; choose another name or empty it"
        )
    if not overwrite:
        raise ConfigError(f"{label} exists; pass overwrite=True (--force) to replace it")


def _remove(path: Path) -> None:
    """Delete a file or folder without following links; never raise."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    is_folder = path.is_dir()
    if is_folder and sys.platform == "win32":
        return
    try:
        # Windows syncs only files that are open for writing.
        descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder; they give no better promise.
        unable = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES)
        if not is_folder or error.errno not in unable:
            raise

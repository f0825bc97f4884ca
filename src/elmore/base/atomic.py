"""Write files and folders completely or not at all, and keep other writers out.

What has its final name is complete and synced, or it is the previous version, whatever the disk
does and whenever the process dies. A killed writer leaves a hidden file or folder,
`.NAME.<random>.partial`; `locked` removes it when it is safe to do so.
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
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from filelock import FileLock, Timeout

from elmore.base.messages import shown
from elmore.errors import ConfigError, ElmoreError

__all__ = [
    "atomic_file",
    "atomic_folder",
    "atomic_path",
    "finish_file",
    "free_bytes",
    "locked",
    "write_error",
]

# partial: what is being written; old: a folder that is being replaced.
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}\.(?P<kind>partial|old)")
_NO_SPACE = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
# Errors of a descriptor, not of a name: inside the body of an atomic writer they are ours.
_FAILED_WRITE = _NO_SPACE | {errno.EIO, errno.EROFS}
# Seconds between the attempts of a rename on Windows, about three in all.
_PAUSES = (0.01, 0.05, 0.1, 0.3, 0.6, 1.0, 1.0)
_LOGGER = logging.getLogger(__name__)


def free_bytes(folder: Path) -> int | None:
    """The bytes free for us on the disk of a folder, or None if it does not say."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def write_error(error: OSError, path: Path) -> ElmoreError:
    """Turn a failed write into one line that names the path and the space left."""
    free = free_bytes(path.parent)
    left = "" if free is None else f", {free} bytes free there"
    if isinstance(error, FileNotFoundError) and not path.parent.is_dir():
        return ElmoreError(
            f"cannot write '{shown(path, 120)}': its folder does not exist; create it first"
        )
    if error.errno in _NO_SPACE:
        fix = "free some space or raise the file-size limit, or choose another folder"
    elif sys.platform == "win32" and isinstance(error, PermissionError):
        fix = "close the programs that have it open, check the folder's rights, or choose another"
    else:
        fix = "check the folder and its rights, or choose another"
    reason = (error.strerror or str(error)).lower()
    return ElmoreError(f"cannot write '{shown(path, 130)}': {shown(reason, 50)}{left}; {fix}")


@contextlib.contextmanager
def atomic_file(
    path: Path, *, overwrite: bool = False, mode: Literal["wb", "w+b"] = "wb"
) -> Iterator[BinaryIO]:
    """Write a file so that its name holds the complete new content or the old one.

    Args:
        path: the final name.
        overwrite: whether an existing file may be replaced.
        mode: "wb", or "w+b" for writers that read back.

    Yields:
        A binary file under a temporary name in the same folder. When the block ends well it is
        synced and renamed; when it does not, it is deleted and the old file stays.

    Raises:
        ConfigError: the file exists and overwrite is false.
        ElmoreError: the disk refused; names the path and the bytes free.
    """
    with atomic_path(path, overwrite=overwrite) as temporary:
        stream = open(temporary, mode)  # noqa: SIM115 (closed below, in two ways)
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
    path = _absolute(path)
    _check_file(path, overwrite)
    temporary = _temporary(path, "partial")
    with _guarded(temporary, path):
        # O_EXCL never follows a planted link; 0o666 leaves the rights to the umask.
        with _explained(path):
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield temporary
        finish_file(temporary, path, overwrite=overwrite)


def finish_file(temporary: Path, path: Path, *, overwrite: bool = True) -> None:
    """Sync a file that was written under another name of the same folder, and rename it."""
    # Once more: somebody else may have made the file while ours was written.
    _check_file(path, overwrite)
    with _explained(path):
        _sync(temporary)
        _rename(temporary, path)
        _sync_folder(path.parent)


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
    path = _absolute(path)
    _check_folder(path, overwrite, looks_ours)
    temporary, aside = _temporary(path, "partial"), _temporary(path, "old")
    with _guarded(temporary, path):
        with _explained(path):
            os.mkdir(temporary)
        yield temporary
        filled = _check_folder(path, overwrite, looks_ours)
        with _explained(path):
            _sync_tree(temporary)
            if filled:
                _rename(path, aside)
            elif path.is_dir():
                path.rmdir()  # only POSIX renames over an empty folder
            try:
                _rename(temporary, path)
            except BaseException:
                if filled:
                    _rename(aside, path)
                raise
            # Should syncing fail, the old one stays aside: a crash may still undo the renames.
            _sync_folder(path.parent)
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
    """Remove what killed writers left in a tree of folders that nobody else writes in now.

    A writer that died between moving an old folder aside and giving its name to the new one leaves
    no folder under that name: the old one is moved back.
    """
    for root, folders, files in os.walk(folder):
        for match in filter(None, map(_TEMPORARY.fullmatch, [*folders, *files])):
            entry, target = Path(root, match[0]), Path(root, match["name"])
            with contextlib.suppress(OSError):
                if match["kind"] == "old" and not os.path.lexists(target):
                    os.rename(entry, target)
                else:
                    _remove(entry)


def _temporary(path: Path, kind: str) -> Path:
    tag = f".{secrets.token_hex(6)}.{kind}"
    name = path.name
    while len(os.fsencode(name)) > 254 - len(tag):  # most file systems allow 255 bytes
        name = name[:-1]
    return path.with_name(f".{name}{tag}")


def _absolute(path: Path) -> Path:
    path = Path(os.path.abspath(path))
    if not path.name:
        raise ConfigError(f"'{shown(path)}' cannot be written to; name a file or folder in it")
    return path


def _check_file(path: Path, overwrite: bool) -> None:
    """Refuse targets that may not be replaced."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        # Not the error itself, which repeats the path.
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise ConfigError(
            f"cannot write '{shown(path, 160)}': {shown(reason, 60)}; choose another name"
        ) from None
    label = f"'{shown(path, 160)}'"
    if stat.S_ISDIR(mode):
        raise ConfigError(f"{label} is a folder; name a file in it")
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        # Renaming over /dev/null, as root, would break the machine.
        raise ConfigError(f"{label} is not a regular file; choose another name")
    if not overwrite:
        raise ConfigError(f"{label} exists; pass overwrite=True (--force) to replace it")


def _check_folder(path: Path, overwrite: bool, looks_ours: Callable[[Path], bool] | None) -> bool:
    """Refuse targets that may not be replaced; whether a filled folder is in the way."""
    if not os.path.lexists(path):
        return False
    label = f"'{shown(path, 140)}'"
    if path.is_symlink():
        raise ConfigError(f"{label} is a symbolic link; name the folder it points to")
    if not path.is_dir():
        raise ConfigError(f"{label} is not a folder; choose another name")
    with _explained(path):
        if next(path.iterdir(), None) is None:
            return False
    if not overwrite:
        raise ConfigError(f"{label} exists; pass overwrite=True (--force) to replace it")
    if looks_ours is None or not looks_ours(path):
        raise ConfigError(
            f"{label} holds files that elmore did not write; choose another name or empty it"
        )
    return True


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Explain any failure of the disk in a block that writes to `path`."""
    try:
        yield
    except OSError as error:
        raise write_error(error, path) from error


@contextlib.contextmanager
def _guarded(temporary: Path, target: Path) -> Iterator[None]:
    """Remove the temporary file or folder after any failure, and explain failed writes."""
    try:
        yield
    except OSError as error:
        _remove(temporary)
        ours = error.filename is None and error.errno in _FAILED_WRITE
        if ours and not isinstance(error, ElmoreError):
            raise write_error(error, target) from error
        raise
    except BaseException:
        _remove(temporary)
        raise


def _remove(path: Path) -> None:
    """Delete a file or folder without following links; never raise."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _rename(source: Path, target: Path) -> None:
    """Rename, waiting a little where a reader is in the way.

    Windows renames neither onto an open file nor a folder with one inside. Virus scanners and
    indexers open what was just written, for a moment.
    """
    for pause in _PAUSES if sys.platform == "win32" else ():
        try:
            os.replace(source, target)
        except PermissionError:
            time.sleep(pause)
        else:
            return
    os.replace(source, target)


def _sync(path: Path) -> None:
    """Bring a file to the disk."""
    # Windows syncs only files that are open for writing.
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system can."""
    if sys.platform == "win32":
        return
    try:
        _sync(folder)
    except OSError as error:
        # Some network file systems cannot sync a folder; they give no better promise.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES):
            raise


def _sync_tree(folder: Path) -> None:
    for root, _, files in os.walk(folder, topdown=False):
        for name in files:
            file = Path(root, name)
            if not file.is_symlink():
                _sync(file)
        _sync_folder(Path(root))

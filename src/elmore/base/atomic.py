"""Write files and folders completely or not at all.

What has its final name is complete and synced, or it is the previous version, whatever
the disk does and whenever the process dies.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from elmore.base.messages import shown
from elmore.errors import ConfigError, ElmoreError

__all__ = [
    "atomic_file",
    "atomic_folder",
    "atomic_path",
    "clean_partials",
    "finish_file",
    "free_bytes",
    "write_error",
]

# .NAME.<host>-<pid>-<random>.partial: what is being written; .old: a folder being replaced.
_TEMPORARY = re.compile(
    r"\.(?P<name>.+)\.(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{12}\.(?P<kind>partial|old)"
)
_NO_SPACE = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
# Errors of a descriptor, not of a name: inside the body of an atomic writer they are ours.
_FAILED_WRITE = _NO_SPACE | {errno.EIO, errno.EROFS}

# Seconds between the attempts of a rename on Windows, about three in all.
_PAUSES = (0.01, 0.05, 0.1, 0.3, 0.6, 1.0, 1.0)


def _host() -> str:
    # On a shared file system the process ids of another machine say nothing here.
    return hashlib.sha256(platform.node().encode("utf-8", "replace")).hexdigest()[:8]


def _temporary(path: Path, kind: str) -> Path:
    tag = f".{_host()}-{os.getpid()}-{secrets.token_hex(6)}.{kind}"
    name = path.name
    while len(os.fsencode(name)) > 254 - len(tag):  # most file systems allow 255 bytes
        name = name[:-1]
    return path.with_name(f".{name}{tag}")


def free_bytes(folder: Path) -> int | None:
    """Return the bytes free for us on the disk of a folder, or None if it does not say."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def write_error(error: OSError, path: Path) -> ElmoreError:
    """Turn a failed write into one line that names the path and the room left."""
    free = free_bytes(path.parent)
    room = "" if free is None else f", {free} bytes free there"
    if error.errno in _NO_SPACE:
        fix = "free some space or raise the file-size limit, or choose another place"
    elif sys.platform == "win32" and isinstance(error, PermissionError):
        fix = "close the programs that have it open, check the folder's rights, or choose another"
    else:
        fix = "check the folder and its rights, or choose another place"
    reason = (error.strerror or str(error)).lower()
    return ElmoreError(f"cannot write '{shown(path, 130)}': {shown(reason, 50)}{room}; {fix}")


def _alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # os.kill would end the process there; better to leave its files
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def clean_partials(folder: Path, *, alone: bool = False) -> None:
    """Remove what dead writers of this machine left in a folder; bring back what they hid.

    A writer that died between moving an old folder aside and putting the new one in its place
    leaves no folder under the name: the old one is moved back.

    Args:
        folder: where to look.
        alone: nobody else writes there now (a lock is held); then what a dead writer left goes
            too when its process number belongs to somebody else by now.
    """
    try:
        entries = [entry for entry in os.scandir(folder) if _TEMPORARY.fullmatch(entry.name)]
    except OSError:
        return
    host = _host()
    for entry in sorted(entries, key=lambda entry: entry.name):
        match = _TEMPORARY.fullmatch(entry.name)
        if match is None or match["host"] != host:
            continue
        if not alone and _alive(int(match["pid"])):
            continue
        with contextlib.suppress(OSError):
            target = folder / match["name"]
            if match["kind"] == "old" and not os.path.lexists(target):
                os.rename(entry.path, target)
            else:
                _remove(Path(entry.path))


def _remove(path: Path) -> None:
    """Delete a temporary file or folder of ours without following links; never raise."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


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


def _absolute(path: Path) -> Path:
    path = Path(os.path.abspath(path))
    if not path.name:
        raise ConfigError(f"'{shown(path)}' cannot be written to; name a file or folder in it")
    return path


def _check_target(path: Path, overwrite: bool) -> None:
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


@contextlib.contextmanager
def _creating(target: Path) -> Iterator[None]:
    """Explain why a temporary thing beside the target cannot be made."""
    try:
        yield
    except FileNotFoundError:
        raise ElmoreError(
            f"cannot write '{shown(target, 120)}': its folder does not exist; create it first"
        ) from None
    except OSError as error:
        raise write_error(error, target) from error


def _create(path: Path, target: Path) -> int:
    # O_EXCL never follows a planted link; 0o666 leaves the rights to the umask.
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
    flags |= getattr(os, "O_BINARY", 0)
    with _creating(target):
        return os.open(path, flags, 0o666)


@contextlib.contextmanager
def _guarded(temporary: Path, target: Path) -> Iterator[None]:
    """Remove the temporary thing after any failure and explain failed writes."""
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


def _move(rename: Callable[[Path, Path], None], source: Path, target: Path) -> None:
    """Rename, waiting a little where a reader is in the way.

    Windows renames neither onto an open file nor a folder with one inside. Virus scanners and
    indexers open what was just written, for a moment.
    """
    for pause in _PAUSES if sys.platform == "win32" else ():
        try:
            rename(source, target)
        except PermissionError:
            time.sleep(pause)
        else:
            return
    rename(source, target)


def _commit(temporary: Path, target: Path, overwrite: bool) -> None:
    # Once more: the file may have been made by somebody else while ours was written.
    _check_target(target, overwrite)
    try:
        _move(os.replace, temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise write_error(error, target) from error


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
    path = _absolute(path)
    _check_target(path, overwrite)
    clean_partials(path.parent)
    temporary = _temporary(path, "partial")
    descriptor = _create(temporary, path)
    with _guarded(temporary, path):
        try:
            stream = os.fdopen(descriptor, mode)
        except BaseException:
            os.close(descriptor)
            raise
        try:
            yield stream
            try:
                if stream.closed:
                    _sync(temporary)
                else:
                    stream.flush()
                    os.fsync(stream.fileno())
                    stream.close()
            except OSError as error:
                raise write_error(error, path) from error
        finally:
            # After a failed write, closing tries to write the rest once more and fails again.
            with contextlib.suppress(OSError):
                stream.close()
        _commit(temporary, path, overwrite)


@contextlib.contextmanager
def atomic_path(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Do what `atomic_file` does for libraries that open files by name (h5py).

    Yields:
        The name of an empty temporary file in the same folder, to be opened and closed again.
    """
    path = _absolute(path)
    _check_target(path, overwrite)
    clean_partials(path.parent)
    temporary = _temporary(path, "partial")
    os.close(_create(temporary, path))
    with _guarded(temporary, path):
        yield temporary
        finish_file(temporary, path, overwrite=overwrite)


def finish_file(temporary: Path, path: Path, *, overwrite: bool = True) -> None:
    """Sync a file that was written under another name of the same folder, and rename it."""
    path = _absolute(path)
    try:
        _sync(temporary)
    except OSError as error:
        raise write_error(error, path) from error
    _commit(temporary, path, overwrite)


def _check_folder(path: Path, overwrite: bool, looks_ours: Callable[[Path], bool] | None) -> bool:
    """Refuse targets that may not be replaced; tell whether a filled folder is in the way."""
    if not os.path.lexists(path):
        return False
    label = f"'{shown(path, 140)}'"
    if path.is_symlink():
        raise ConfigError(f"{label} is a symbolic link; name the folder it points to")
    if not path.is_dir():
        raise ConfigError(f"{label} is not a folder; choose another name")
    try:
        if next(iter(path.iterdir()), None) is None:
            return False
    except OSError as error:
        raise write_error(error, path) from error
    if not overwrite:
        raise ConfigError(f"{label} exists; pass overwrite=True (--force) to replace it")
    if looks_ours is None or not looks_ours(path):
        raise ConfigError(
            f"{label} holds files that elmore did not write; choose another name or empty it"
        )
    return True


def _sync_tree(folder: Path) -> None:
    for root, _, files in os.walk(folder, topdown=False):
        for name in files:
            file = Path(root, name)
            if not file.is_symlink():
                _sync(file)
        _sync_folder(Path(root))


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
        A temporary folder beside the target, to be filled. When the block ends well it is
        synced and renamed; when it does not, it is deleted and the old folder stays.
    """
    path = _absolute(path)
    _check_folder(path, overwrite, looks_ours)
    clean_partials(path.parent)
    temporary = _temporary(path, "partial")
    with _creating(path):
        os.mkdir(temporary)
    with _guarded(temporary, path):
        yield temporary
        filled = _check_folder(path, overwrite, looks_ours)
        try:
            _sync_tree(temporary)
            if filled:
                _exchange(temporary, path)
            else:
                _put(temporary, path)
        except OSError as error:
            raise write_error(error, path) from error


def _put(temporary: Path, path: Path) -> None:
    if sys.platform == "win32" and path.is_dir():
        path.rmdir()  # only POSIX renames over an empty folder
    _move(os.rename, temporary, path)
    _sync_folder(path.parent)


def _exchange(temporary: Path, path: Path) -> None:
    """Put a folder in the place of a filled one, which is moved aside and then deleted."""
    aside = _temporary(path, "old")
    _move(os.rename, path, aside)
    try:
        _move(os.rename, temporary, path)
    except BaseException:
        _move(os.rename, aside, path)
        raise
    # Should syncing fail, the old one stays aside: a crash may still undo the renames.
    _sync_folder(path.parent)
    _remove(aside)

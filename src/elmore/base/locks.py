"""Locks between processes. The operating system holds them, so a dead process holds none."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from elmore.base.atomic import write_error
from elmore.base.messages import shown
from elmore.errors import ElmoreError

__all__ = ["hold_lock", "locked"]

_PAUSE = 0.1
_BUSY = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK}
# Windows lets nobody read a locked byte. This one is far behind the process id in the file, which
# a refused process must be able to read.
_LOCKED_BYTE = 1 << 30


@contextlib.contextmanager
def hold_lock(path: Path, *, on_wait: Callable[[], object] = lambda: None) -> Iterator[bool]:
    """Hold a lock file, waiting for the process that has it.

    Args:
        path: the lock file; it is created, and stays.
        on_wait: called once if another process holds it.

    Yields:
        whether it is really held: some file systems have no locks.
    """
    descriptor = _open(path)
    try:
        waited = False
        while True:
            try:
                held = _try_lock(descriptor)
                break
            except BlockingIOError:
                if not waited:
                    on_wait()
                    waited = True
                time.sleep(_PAUSE)
        yield held
    finally:
        os.close(descriptor)  # which releases the lock


@contextlib.contextmanager
def locked(
    path: Path,
    busy: str,
    *,
    error: type[ElmoreError] = ElmoreError,
    keep: Callable[[], bool] = lambda: True,
) -> Iterator[None]:
    """Hold a lock file, or refuse at once, so that two processes never write into one folder.

    Args:
        path: the lock file; it is created, and holds the owner's process id.
        busy: the message if another process holds it, with {owner} for its process id.
        error: the type of that error.
        keep: asked at the end: whether the lock file stays.

    Raises:
        ElmoreError: another process holds it.
    """
    descriptor = _acquire(path, busy, error)
    try:
        yield
    finally:
        remove = not keep()
        # Before the lock is released: afterwards the file may be another process's lock.
        if remove and sys.platform != "win32":
            _remove(path)
        os.close(descriptor)  # which releases the lock
        # Windows removes no open file, and for the same reason no lock of another process.
        if remove and sys.platform == "win32":
            _remove(path)


def _acquire(path: Path, busy: str, error: type[ElmoreError]) -> int:
    """Open and lock a file; the descriptor."""
    while True:
        descriptor = _open(path)
        try:
            held = _try_lock(descriptor)
            if _is_current(descriptor, path):
                if held:
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, f"{os.getpid()}\n".encode())
                return descriptor
        except BlockingIOError:
            owner = os.read(descriptor, 40).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise error(busy.replace("{owner}", shown(owner, 30))) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_current(descriptor: int, path: Path) -> bool:
    """Whether the open file still has its name.

    The last owner may have removed it after we opened it. A lock on such a file keeps nobody out.
    """
    if sys.platform == "win32":
        return True  # an open file cannot be removed there
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise write_error(error, path) from error


def _try_lock(descriptor: int) -> bool:
    """Take the lock; `BlockingIOError` if another has it, False where there are no locks."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            finally:
                os.lseek(descriptor, 0, os.SEEK_SET)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            raise BlockingIOError(error.errno, "locked") from None
        return False
    return True

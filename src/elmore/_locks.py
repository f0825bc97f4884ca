"""Locks between processes, held by the operating system: a dead process holds none."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from elmore._atomic import write_error
from elmore._messages import shown
from elmore.errors import ElmoreError

__all__ = ["hold_lock", "locked"]

_PAUSE = 0.1
_BUSY = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK}


@contextlib.contextmanager
def hold_lock(path: Path, *, on_wait: Callable[[], object] = lambda: None) -> Iterator[bool]:
    """Hold a lock file, waiting for whoever has it.

    Args:
        path: the lock file; it is made, and stays.
        on_wait: told once if another process holds it.

    Yields:
        whether it is really held: some file systems have no locks.
    """
    descriptor = _open(path)
    try:
        told = False
        while True:
            try:
                held = _try_lock(descriptor)
                break
            except BlockingIOError:
                if not told:
                    on_wait()
                    told = True
                time.sleep(_PAUSE)
        yield held
    finally:
        os.close(descriptor)  # which lets go of the lock


@contextlib.contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold a lock file, or refuse at once, so that two processes never write into one folder.

    Args:
        path: the lock file; it is made, and holds the owner's process id.
        busy: what to say when another holds it, with {owner} for its process id.

    Raises:
        ElmoreError: another process holds it.
    """
    descriptor = _open(path)
    try:
        try:
            held = _try_lock(descriptor)
        except BlockingIOError:
            owner = os.read(descriptor, 40).decode("ascii", "replace").strip() or "?"
            raise ElmoreError(busy.replace("{owner}", shown(owner, 30))) from None
        if held:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)  # which lets go of the lock


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as error:
        raise write_error(error, path) from error


def _try_lock(descriptor: int) -> bool:
    """Take the lock; `BlockingIOError` if another has it, False where there are no locks."""
    try:
        if os.name == "nt":
            import msvcrt

            lock = getattr(msvcrt, "locking")  # noqa: B009 (unknown to type checkers elsewhere)
            lock(descriptor, getattr(msvcrt, "LK_NBLCK"), 1)  # noqa: B009
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            raise BlockingIOError(error.errno, "locked") from None
        return False
    return True

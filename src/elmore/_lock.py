"""A file that one process holds, so that two never write into one folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from elmore._atomic import write_error
from elmore._messages import shown
from elmore.errors import ElmoreError

__all__ = ["locked"]


@contextlib.contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold a lock file, which is made if it is not there.

    The lock is the operating system's, so a dead process holds none.

    Args:
        path: the file; the holder's process id is written into it.
        busy: what to say when another holds it, with {owner} for its process id.

    Raises:
        ElmoreError: another process holds it.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as error:
        raise write_error(error, path) from error
    try:
        _take(descriptor, busy)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, busy: str) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 40).decode("ascii", "replace").strip() or "?"
        raise ElmoreError(busy.replace("{owner}", shown(owner, 30))) from None
    except OSError:
        return  # a file system without locks
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())

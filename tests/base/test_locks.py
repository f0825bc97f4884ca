"""Locks between processes."""

from __future__ import annotations

import errno
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elmore.base import locks as _locks
from elmore.base.locks import hold_lock, locked
from elmore.errors import ElmoreError, ResumeError


def hold(path: Path, held: Any, go: Any) -> None:
    with hold_lock(path):
        held.set()
        go.wait(10)


def test_another_process_waits_and_is_told(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    held, go = context.Event(), context.Event()
    other = context.Process(target=hold, args=(tmp_path / "lock", held, go))
    other.start()
    assert held.wait(10)
    told: list[int] = []

    def tell() -> None:
        told.append(1)
        go.set()  # only now does the other let go

    with hold_lock(tmp_path / "lock", on_wait=tell) as really:
        assert really
    other.join()
    assert told == [1]


def test_a_lock_is_let_go_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), hold_lock(tmp_path / "lock"):
        raise ZeroDivisionError
    with hold_lock(tmp_path / "lock", on_wait=lambda: pytest.fail("still held")):
        pass


def test_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuse(*_: object) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with hold_lock(tmp_path / "lock") as really:
        assert not really
    assert _locks._try_lock(0) is False


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ElmoreError, match="cannot write"), hold_lock(tmp_path / "no" / "lock"):
        pass


BUSY = "in use by {owner}; wait"


def test_a_second_writer_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for _ in range(2):
        with locked(path, BUSY):
            for error in (ElmoreError, ResumeError):
                with (
                    pytest.raises(error, match=f"^in use by {os.getpid()}; wait$"),
                    locked(path, BUSY, error=error),
                ):
                    pass
    assert path.read_text() == f"{os.getpid()}\n"


def test_a_lock_file_that_is_not_needed_any_more_goes(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(ZeroDivisionError), locked(path, BUSY, keep=lambda: False):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_lock_on_a_removed_file_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We opened the file, then its owner removed it and ended: lock the file under the name."""
    path = tmp_path / "lock"
    real, calls = _locks._try_lock, []

    def lose_the_race(descriptor: int) -> bool:
        calls.append(descriptor)
        if len(calls) == 1:
            path.unlink()
        return real(descriptor)

    monkeypatch.setattr(_locks, "_try_lock", lose_the_race)
    with locked(path, BUSY):
        assert len(calls) == 2
        with pytest.raises(ElmoreError, match="in use"), locked(path, BUSY):
            pass


def test_the_modules_need_no_posix(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['fcntl'] = None\n"  # so that importing it fails
        "import elmore.base.locks, elmore.training.run"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With msvcrt as documented: a locked byte can be read by nobody else."""
    owners: dict[int, int] = {}

    def locking(descriptor: int, mode: int, n_bytes: int) -> None:
        assert (mode, n_bytes) == (2, 1)
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        if place in owners:
            raise OSError(errno.EACCES, "denied")
        owners[place] = descriptor

    path = tmp_path / "lock"
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    monkeypatch.setattr(_locks, "sys", SimpleNamespace(platform="win32"))
    with locked(path, BUSY, keep=lambda: False):
        text = path.read_bytes()
        assert text == f"{os.getpid()}\n".encode()
        assert min(owners) >= len(text)
        with pytest.raises(ElmoreError, match=f"in use by {os.getpid()};"), locked(path, BUSY):
            pass
    assert not path.exists()

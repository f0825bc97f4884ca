"""Locks between processes."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from elmore import _locks
from elmore._locks import hold_lock
from elmore.errors import ElmoreError


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

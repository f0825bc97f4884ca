"""numpy's BLAS keeps to one thread while our own threads share the work."""

from __future__ import annotations

import threading

import pytest

from elmore.compute import workers
from elmore.compute.workers import one_blas_thread

control = workers._blas_control()


@pytest.mark.skipif(control is None, reason="numpy has another BLAS here")
def test_the_last_of_several_threads_gives_the_count_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMORE_NATIVE", "0")
    assert control is not None
    get, change = control
    before = get()
    change(2)
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_blas_thread():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    try:
        with one_blas_thread():
            thread.start()
            assert entered.wait(10)
        assert get() == 1  # the other one is still inside
        leave.set()
        thread.join(10)
        assert get() == 2
    finally:
        change(before)

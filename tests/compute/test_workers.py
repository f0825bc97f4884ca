"""Threads that compute side by side."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time

import pytest
import torch

from elmore.compute.workers import Workers
from elmore.nn.threads import TorchWorkers


@pytest.mark.parametrize("threads", [1, 2, 3, 8, None])
def test_results_keep_the_order_of_the_jobs(threads: int | None) -> None:
    workers = Workers(threads)

    def job(k: int) -> int:
        time.sleep(0.002 * (k % 3 == 0))
        return k

    assert workers.run([lambda k=k: job(k) for k in range(20)]) == list(range(20))
    assert workers.run([]) == []


def test_threads_of_the_caller_are_left_alone() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        TorchWorkers(1).run([lambda: None])
        assert torch.get_num_threads() == 3
        seen: list[int] = []
        other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        other.start()
        other.join()
        assert seen == [3]
        assert TorchWorkers(1).run([torch.get_num_threads]) == [1]
    finally:
        torch.set_num_threads(before)


def test_an_error_of_a_job_is_raised_and_the_workers_go_on() -> None:
    workers = Workers(2)

    def broken() -> None:
        raise KeyError("broken job")

    with pytest.raises(KeyError, match="broken job"):
        workers.run([broken, lambda: None])
    assert workers.run([lambda: 7]) == [7]


def test_threads_end_with_their_workers() -> None:
    before = set(threading.enumerate())
    workers = Workers(2)
    workers.run([lambda: None])
    started = set(threading.enumerate()) - before
    assert started
    del workers
    gc.collect()
    for thread in started:
        thread.join(5)
        assert not thread.is_alive()


def test_sharing_takes_back_what_nobody_began() -> None:
    workers = Workers(2)
    release, begun = threading.Event(), threading.Semaphore(0)

    def wait() -> None:
        begun.release()
        release.wait(10)

    hogs = [threading.Thread(target=workers.run, args=([wait],)) for _ in range(2)]
    for hog in hogs:
        hog.start()
    for _ in hogs:
        assert begun.acquire(timeout=10)
    # Both threads are busy now, so the caller must do all three.
    names = workers.share([threading.get_ident] * 3)
    assert names == [threading.get_ident()] * 3
    release.set()
    for hog in hogs:
        hog.join(10)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_job_may_run_jobs(threads: int) -> None:
    workers = Workers(threads, threads)

    def outer(k: int) -> list[int]:
        return workers.run([lambda j=j: 10 * k + j for j in range(3)])

    found = workers.run([lambda k=k: outer(k) for k in range(8)])
    assert found == [[10 * k + j for j in range(3)] for k in range(8)]


def test_processors_are_shared_among_the_jobs_there_are() -> None:
    workers = TorchWorkers(8, 8)
    assert workers.count == 8
    assert workers.run([torch.get_num_threads]) == [8]
    assert workers.run([torch.get_num_threads] * 4) == [2] * 4
    assert workers.run([torch.get_num_threads] * 20) == [1] * 20


@pytest.mark.parametrize("way", ["run", "share"])
def test_nothing_runs_on_after_an_error(way: str) -> None:
    begun, ended = [], []

    def slow(k: int) -> None:
        begun.append(k)
        time.sleep(0.05)
        ended.append(k)

    def broken() -> None:
        time.sleep(0.02)
        raise KeyError("broken job")

    with pytest.raises(KeyError, match="broken job"):
        getattr(Workers(2), way)([broken, *(lambda k=k: slow(k) for k in range(50))])
    assert sorted(begun) == sorted(ended)
    assert len(begun) < 50


def test_a_job_in_hand_ends_before_the_process_does() -> None:
    """A thread that Python cuts off inside torch would abort the process."""
    code = """
import time
import threading
from elmore.compute.workers import Workers

def job():
    time.sleep(0.3)
    print("done", flush=True)

threading.Thread(target=Workers(2).run, args=([job],), daemon=True).start()
time.sleep(0.1)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")

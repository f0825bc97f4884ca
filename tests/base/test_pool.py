"""elmore.base.pool: order, errors, deaths, and nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from small_models import posix

from base import tasks
from elmore.base.pool import Pool
from elmore.errors import ConfigError, ElmoreError, InputError

requires_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")


def numbered(n: int, **fields: object) -> list[dict[str, Any]]:
    return [{"number": k, **fields} for k in range(n)]


@pytest.mark.parametrize(("n_workers", "in_process"), [(1, True), (2, False)])
def test_every_request_is_done_once(n_workers: int, in_process: bool) -> None:
    setup, environment = {"version": 2}, {"OMP_NUM_THREADS": "3"}
    with Pool(
        tasks.start, n_workers, setup=setup, environment=environment, in_process=in_process
    ) as pool:
        assert pool.facts() == {"version": 2}
        for in_order in (True, False):
            done = list(pool.map(numbered(9), in_order=in_order))
            found = [request["number"] for request, _ in done]
            assert (found if in_order else sorted(found)) == list(range(9))
            assert ({reply["pid"] for _, reply in done} == {os.getpid()}) == in_process
            assert in_process or {reply["threads"] for _, reply in done} == {"3"}
        assert list(pool.map([])) == []


def test_requests_are_taken_a_few_ahead() -> None:
    taken = []

    def requests():
        for request in numbered(50):
            taken.append(request)
            yield request

    with Pool(tasks.start, 2) as pool:
        next(pool.map(requests(), in_order=True))
        assert len(taken) == 4


def test_an_error_of_a_worker_is_raised_here() -> None:
    with Pool(tasks.start, 1) as pool:
        with pytest.raises(InputError, match=r"^a.txt:7: the line is bad; correct it$") as caught:
            list(pool.map([{"fail": "input"}]))
        assert (caught.value.file, caught.value.line) == ("a.txt", 7)
        with pytest.raises(ElmoreError, match=r"^out of memory; use fewer workers$"):
            list(pool.map([{"fail": "memory"}]))
        assert list(pool.map(numbered(1)))  # the worker is still there


@pytest.mark.parametrize("in_process", [True, False])
def test_what_a_worker_cannot_start_with(in_process: bool) -> None:
    with (
        pytest.raises(ConfigError, match=r"^x is refused; pass another$"),
        Pool(tasks.start, 1, setup={"refuse": "x"}, in_process=in_process) as pool,
    ):
        pool.facts()


@pytest.mark.parametrize("n_workers", [0, 4097])
def test_how_many_workers(n_workers: int) -> None:
    with pytest.raises(ConfigError, match=f"workers={n_workers} is out of range"):
        Pool(tasks.start, n_workers)


@posix
def test_a_dead_worker_ends_the_run_with_one_line() -> None:
    requests = [*numbered(3), {"die": True}, *numbered(30)]
    message = r"^a worker process died.*run it again to resume.*$"
    with Pool(tasks.start, 2) as pool, pytest.raises(ElmoreError, match=message):
        list(pool.map(requests))


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@requires_proc
def test_leaving_ends_the_workers_at_once() -> None:
    pids: set[int] = set()

    def interrupted() -> None:
        with Pool(tasks.start, 2) as pool:
            pids.update(reply["pid"] for _, reply in pool.map(numbered(8, seconds=0.02)))
            for _ in pool.map([*numbered(1), *numbered(3, seconds=60)]):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert pids
    assert all(map(gone, pids))


PARENT = """
import sys, os
sys.path.insert(0, sys.argv[1])
from elmore.base.pool import Pool
from base import tasks
with Pool(tasks.start, 2) as pool:
    [(_, reply)] = pool.map([{}])
    print(reply["pid"], flush=True)
    list(pool.map([{"seconds": 60}] * 2))
"""


@requires_proc
@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_workers_do_not_outlive_their_parent(name: str) -> None:
    tests = str(Path(__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, tests],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(getattr(signal, name))
        parent.wait(30)
        deadline = time.monotonic() + 30
        while not gone(pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)

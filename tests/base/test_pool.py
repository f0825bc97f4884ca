"""elmore.base.pool: order, errors, deaths, and nothing left running."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from base import tasks
from elmore.base.pool import Pool, Request
from elmore.errors import ConfigError, ElmoreError, InputError

requires_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")


def numbered(n: int, **fields: object) -> list[Request]:
    return [Request(f"request {k}", {"number": k, **fields}, b"x" * k) for k in range(n)]


@pytest.mark.parametrize(("n_workers", "in_process"), [(1, True), (1, False), (2, False)])
def test_every_request_is_done_once(n_workers: int, in_process: bool) -> None:
    with Pool(tasks.start, n_workers, in_process=in_process) as pool:
        for in_order in (True, False):
            done = list(pool.map(numbered(9), in_order=in_order))
            found = [(request.fields["number"], reply["size"]) for request, reply in done]
            assert (found if in_order else sorted(found)) == [(k, k) for k in range(9)]
            assert ({reply["pid"] for _, reply in done} == {os.getpid()}) == in_process
        assert list(pool.map([])) == []


def test_a_slow_request_holds_back_later_replies_only_if_they_come_in_order() -> None:
    requests = [Request("slow", {"number": 0, "seconds": 0.5}), *numbered(4)[1:]]
    with Pool(tasks.start, 2) as pool:
        pool.facts()
        unordered = [request.fields["number"] for request, _ in pool.map(requests)]
        ordered = [request.fields["number"] for request, _ in pool.map(requests, in_order=True)]
    assert unordered[0] != 0
    assert sorted(unordered) == ordered == [0, 1, 2, 3]


def test_requests_are_taken_a_few_ahead() -> None:
    taken = []

    def requests():
        for request in numbered(50):
            taken.append(request)
            yield request

    with Pool(tasks.start, 2) as pool:
        next(pool.map(requests(), in_order=True))
        assert len(taken) == 4


@pytest.mark.parametrize(
    ("fail", "kind", "message"),
    [
        ("input", InputError, "a.txt:7: the line is bad; correct it"),
        ("memory", ElmoreError, "out of memory; use fewer workers"),
        (
            "unexpected",
            ElmoreError,
            "unexpected ZeroDivisionError in a worker process: first line\\nsecond line; please "
            "report it",
        ),
    ],
)
def test_an_error_of_a_worker_is_one_line_here(fail: str, kind: type, message: str) -> None:
    with Pool(tasks.start, 1) as pool:
        with pytest.raises(kind) as caught:
            list(pool.map([Request("bad", {"fail": fail})]))
        assert str(caught.value) == message
        if kind is InputError:
            assert (caught.value.file, caught.value.line) == ("a.txt", 7)
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


def test_a_killed_worker_is_replaced_and_its_request_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    requests = [Request(f"shard {k}", {"die_unless": str(tmp_path / f"{k}")}) for k in range(3)]
    with caplog.at_level(logging.WARNING), Pool(tasks.start, 2) as pool:
        assert len(list(pool.map(requests))) == 3
        # An idle worker that dies is not even noticed.
        pids = {reply["pid"] for _, reply in pool.map(numbered(8, seconds=0.05))}
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        n_warnings = len(caplog.records)
        time.sleep(0.2)
        again = {reply["pid"] for _, reply in pool.map(numbered(8))}
    assert not pids & again
    assert n_warnings == len(caplog.records) == 3
    assert "ended with code -9; shard " in caplog.text
    assert caplog.text.count("is repeated") == 3


@pytest.mark.parametrize("start", [tasks.start_to_die, tasks.start_and_die])
def test_a_request_that_kills_every_worker_ends_the_run(start) -> None:
    code = -9 if start is tasks.start_to_die else 9
    message = rf"ended with code {code} \(3 times in a row\).*memory; run it again with fewer"
    with Pool(start, 2) as pool, pytest.raises(ElmoreError, match=message) as caught:
        list(pool.map(numbered(3)))
    assert "\n" not in str(caught.value)


def test_workers_must_agree_on_what_they_loaded(tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.write_text("1")
    with Pool(tasks.start, 1, setup={"version": str(version)}) as pool:
        assert pool.facts() == {"version": "1"}
        version.write_text("2")
        request = Request("shard 0", {"die_unless": str(tmp_path / "mark")})
        with pytest.raises(ElmoreError, match="changed during the run"):
            list(pool.map([request]))


def test_the_environment_of_the_workers() -> None:
    with Pool(tasks.start, 1, environment={"OMP_NUM_THREADS": "3"}) as pool:
        [(_, reply)] = pool.map(numbered(1))
    assert reply["threads"] == "3"


def test_a_process_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/python")
    message = r"cannot start a worker process.*use fewer workers"
    with pytest.raises(ElmoreError, match=message), Pool(tasks.start, 2):
        pass


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
from elmore.base.pool import Pool, Request
from base import tasks
with Pool(tasks.start, 2) as pool:
    [(_, reply)] = pool.map([Request("a", {})])
    print(reply["pid"], flush=True)
    list(pool.map([Request("a", {"seconds": 60})] * 2))
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

"""Threads that each compute with few torch threads, so that independent work runs side by side."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import torch

from elmore._machine import available_threads
from elmore.errors import ConfigError

__all__ = ["Workers"]

Result = TypeVar("Result")


class Workers:
    """Up to two threads that run jobs, together on at most `threads` processors.

    Two, because a biLM has two directions and neither waits for the other: that beats matrix
    products on two threads, which meet at every step (benchmarks/embed.py). Threads start with
    the first job, and again after a fork.

    Args:
        threads: processors to use; all by default.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] | None = None
        self._process = 0
        if threads is not None and threads < 1:
            raise ConfigError(f"threads={threads}; use 1 or more")
        self.threads = threads if threads is not None else available_threads()
        self.count = min(2, self.threads)

    def run(self, jobs: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run jobs and give their results in order; the first error is raised here."""
        waiting = self._started()
        futures: list[Future[Result]] = [Future() for _ in jobs]
        for job, future in zip(jobs, futures, strict=True):
            waiting.put((job, future))
        return [future.result() for future in futures]

    def share(self, jobs: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run jobs that set no store by torch's thread count, the calling thread helping.

        It does the first, and whatever no other thread has begun by then: handing work over costs
        next to nothing even where the other processors are busy.
        """
        if self.count == 1:
            return [job() for job in jobs]
        waiting = self._started()
        futures: list[Future[Result]] = [Future() for _ in jobs[1:]]
        for job, future in zip(jobs[1:], futures, strict=True):
            waiting.put((job, future))
        results = [jobs[0]()] if jobs else []
        for job, future in zip(jobs[1:], futures, strict=True):
            results.append(job() if future.cancel() else future.result())
        return results

    def _started(self) -> queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]:
        with self._lock:
            if self._jobs is None or self._process != os.getpid():
                self._process = os.getpid()
                self._jobs = queue.SimpleQueue()
                self._start(self._jobs)
            return self._jobs

    def _start(self, jobs: queue.SimpleQueue[Any]) -> None:
        ready = threading.Barrier(self.count + 1)
        inner = max(1, self.threads // self.count)
        before = torch.get_num_threads()
        for _ in range(self.count):
            threading.Thread(target=_work, args=(jobs, inner, ready), daemon=True).start()
        ready.wait()
        # The count is each thread's own, but threads that others start later would inherit what
        # our workers set: put back what was there.
        torch.set_num_threads(before)

    def close(self) -> None:
        """End the threads after the jobs that are waiting."""
        with self._lock:
            if self._jobs is not None and self._process == os.getpid():
                for _ in range(self.count):
                    self._jobs.put(None)
            self._jobs = None

    def __del__(self) -> None:
        self.close()


def _work(jobs: queue.SimpleQueue[Any], inner: int, ready: threading.Barrier) -> None:
    # The first question in a thread takes over the count of the process; asked later, it would
    # undo what is set here.
    torch.get_num_threads()
    torch.set_num_threads(inner)
    # This thread's own flag; some processors are many times slower on denormal numbers.
    torch.set_flush_denormal(True)
    ready.wait()
    while (item := jobs.get()) is not None:
        job, future = item
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
        # Nothing of a finished job may live on in an idle thread.
        del item, job, future

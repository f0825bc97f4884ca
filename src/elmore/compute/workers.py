"""Threads that run independent work side by side, together on a given number of processors."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from elmore.base.machine import available_threads
from elmore.compute.native import native
from elmore.errors import ConfigError

Result = TypeVar("Result")

# OpenBLAS, as numpy's wheels bundle it and as systems have it.
_PREFIXES = ("scipy_openblas", "openblas")
_SUFFIXES = ("64_", "_64", "")
_blas_lock = threading.Lock()
_blas_users = 0
_blas_threads = 1
# Whose job this thread is running.
_inside = threading.local()


class Workers:
    """Threads that run jobs, together on at most `threads` processors.

    A biLM has two directions and neither waits for the other: that beats matrix products on two
    threads, which meet at every step (benchmarks/embed.py). Threads start with the first job, and
    again after a fork.

    Args:
        threads: processors to use; all by default.
        count: how many threads run jobs; two by default, if there are as many.
    """

    def __init__(self, threads: int | None = None, count: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise ConfigError(f"threads={threads}; use 1 or more")
        self.threads = threads if threads is not None else available_threads()
        self.count = min(2 if count is None else count, self.threads)
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0

    def run(
        self,
        jobs: Sequence[Callable[[], Result]],
        done: Callable[[Result], object] = lambda result: None,
    ) -> list[Result]:
        """Run jobs and give their results in order; the first error is raised here.

        No job is running any more when this is left. A job may run others in its turn.

        Args:
            jobs: what to run.
            done: gets each result as soon as those before it are there, in the calling thread.
        """
        outer: Workers | None = getattr(_inside, "workers", None)
        if outer is self:  # a thread that waited for itself would wait forever
            results = self.share(jobs)
            for result in results:
                done(result)
            return results
        futures: list[Future[Result]] = []
        try:
            futures.extend(self._submit(job) for job in jobs)
            results = []
            for future in futures:
                results.append(future.result())
                done(results[-1])
            return results
        except BaseException:
            _end(futures)
            raise

    def share(self, jobs: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run jobs that use no threads of their own, the calling thread helping.

        It does the first, and whatever no other thread has begun by then: handing work over costs
        next to nothing even where the other processors are busy.
        """
        if self.count == 1:
            return [job() for job in jobs]
        futures: list[Future[Result]] = []
        try:
            futures.extend(self._submit(job) for job in jobs[1:])
            results = [jobs[0]()] if jobs else []
            for job, future in zip(jobs[1:], futures, strict=True):
                results.append(job() if future.cancel() else future.result())
            return results
        except BaseException:
            _end(futures)
            raise

    def _submit(self, job: Callable[[], Result]) -> Future[Result]:
        with self._lock:
            # A forked process has none of the threads.
            if self._pool is None or self._process != os.getpid():
                self._process = os.getpid()
                self._pool = ThreadPoolExecutor(self.count)
            return self._pool.submit(_perform, self, job)


def _perform(workers: Workers, job: Callable[[], Result]) -> Result:
    """Do a job in a worker thread."""
    _inside.workers = workers
    try:
        return job()
    finally:
        _inside.workers = None


def _end(futures: Sequence[Future[Any]]) -> None:
    """Take back what was not begun, and wait for the rest."""
    wait([future for future in futures if not future.cancel()])


# --------------------------------------------------------------------------- numpy's threads


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let OpenBLAS use one thread, and give its threads back when the last user has left.

    Without the C extension every product is numpy's. Its threads meet at every step of an LSTM,
    and on a busy machine they wait for each other most of the time: one thread per direction is
    up to six times as fast. The number of threads belongs to the process, so users are counted.
    Another BLAS is left alone; where the extension computes the products, nothing is done.
    """
    global _blas_users, _blas_threads
    control = None if native().vectors else _blas_control()
    if control is None:
        yield
        return
    get, set_threads = control
    with _blas_lock:
        if not _blas_users:
            _blas_threads = get()
            set_threads(1)
        _blas_users += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if not _blas_users:
                set_threads(_blas_threads)


@functools.lru_cache(maxsize=1)
def _blas_control() -> tuple[Any, Any] | None:
    """The functions of the OpenBLAS inside numpy's wheel that get and set its threads."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            try:
                library = ctypes.CDLL(str(path))  # loaded already: this finds it again
            except OSError:
                continue
            for prefix in _PREFIXES:
                for suffix in _SUFFIXES:
                    name = f"{prefix}_{{}}_num_threads{suffix}"
                    get = getattr(library, name.format("get"), None)
                    change = getattr(library, name.format("set"), None)
                    if get is not None and change is not None:
                        return get, change
    return None

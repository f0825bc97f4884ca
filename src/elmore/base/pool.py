"""A pool of worker processes, each of which loads what it needs once.

A worker that dies ends the run. The callers keep a journal of what is finished (base/journal.py),
so running it again resumes.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from typing import Any, NamedTuple, TypeVar

from elmore.errors import ConfigError, ElmoreError

_MAX_WORKERS = 61 if sys.platform == "win32" else 4096  # what the system can wait for at once


_R = TypeVar("_R")


class Worker(NamedTuple):
    """A process that is ready to work.

    Attributes:
        perform: does one request, which can be pickled like the reply. A kill may end it at any
            moment, so it must leave nothing half done.
        facts: what the results depend on besides the requests, such as the model that was loaded.
    """

    perform: Callable[[Any], dict[str, Any]]
    facts: Mapping[str, Any] = {}


# Makes a process ready. A function at the top of a module, so that another process can import it.
Start = Callable[[Mapping[str, Any]], Worker]


class Pool(contextlib.AbstractContextManager["Pool"]):
    """Worker processes that perform requests.

    Args:
        start: makes a worker ready; called once in each process.
        n_workers: how many.
        setup: values for `start`.
        environment: variables to set in the processes, before they import anything.
        in_process: perform the requests in the calling process instead, one after the other.
    """

    def __init__(
        self,
        start: Start,
        n_workers: int,
        *,
        setup: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        in_process: bool = False,
    ) -> None:
        if not 1 <= n_workers <= _MAX_WORKERS:
            raise ConfigError(
                f"workers={n_workers} is out of range; pass a number from 1 to {_MAX_WORKERS}"
            )
        self._start, self._setup, self._n_workers = start, setup or {}, n_workers
        self._environment = environment or {}
        self._own = start(self._setup) if in_process else None
        # Nothing of the caller is forked, its threads least of all.
        self._executor = ProcessPoolExecutor(
            n_workers, multiprocessing.get_context("spawn"), initializer=_follow_parent
        )
        self._ready: list[Future[Any]] = []

    def __enter__(self) -> Pool:
        if self._own is None:
            # One request for each process starts them all. They get ready while the caller does
            # something else.
            with _environment(self._environment):
                self._ready = [self._submit(None) for _ in range(self._n_workers)]
        return self

    def __exit__(self, *details: object) -> None:
        # Nothing is lost by a kill: workers write files atomically.
        for process in list((self._executor._processes or {}).values()):
            process.kill()
        self._executor.shutdown(cancel_futures=True)

    def facts(self) -> Mapping[str, Any]:
        """Wait until a worker is ready; its facts."""
        if self._own is not None:
            return self._own.facts
        with _deaths_explained():
            facts: Mapping[str, Any] = self._ready[0].result()
        return facts

    def map(
        self, requests: Iterable[_R], *, in_order: bool = False
    ) -> Iterator[tuple[_R, dict[str, Any]]]:
        """Perform requests; yield each with its reply.

        Requests are taken a few ahead of the replies, in the calling thread.

        Args:
            requests: what to do.
            in_order: yield in the order of the requests, not as they are done.

        Raises:
            ElmoreError: a worker met it, or died.
        """
        if self._own is not None:
            for request in requests:
                yield request, self._own.perform(request)
            return
        source = iter(requests)
        waiting: dict[Future[Any], _R] = {}
        while True:
            # Two for each worker, so that none waits for the caller to read the next one.
            for request in itertools.islice(source, 2 * self._n_workers - len(waiting)):
                waiting[self._submit(request)] = request
            if not waiting:
                return
            first = [next(iter(waiting))]  # a dict keeps the order of insertion
            done = first if in_order else wait(waiting, return_when=FIRST_COMPLETED).done
            for future in done:
                with _deaths_explained():
                    reply = future.result()
                yield waiting.pop(future), reply

    def _submit(self, request: object) -> Future[Any]:
        with _deaths_explained():
            return self._executor.submit(_perform, self._start, self._setup, request)


@contextlib.contextmanager
def _deaths_explained() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool:
        raise ElmoreError(
            "a worker process died, perhaps for lack of memory; run it again to resume, with fewer "
            "workers (a script must start its work under `if __name__ == '__main__':`)"
        ) from None


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a moment."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# --------------------------------------------------------------------------- in a worker process

_worker: Worker | None = None


def _follow_parent() -> None:
    """Leave interrupts to the parent, and end at once when it ends, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            wait_for([parent.sentinel])
            os._exit(0)  # a file that is not complete has no name yet

    threading.Thread(target=watch, daemon=True).start()


def _perform(start: Start, setup: Mapping[str, Any], request: object) -> Mapping[str, Any]:
    """Get ready if that has not happened, and do a request; None for the facts of the worker."""
    global _worker
    try:
        _worker = _worker or start(setup)
        return _worker.facts if request is None else _worker.perform(request)
    except MemoryError:
        raise ElmoreError("out of memory; use fewer workers") from None

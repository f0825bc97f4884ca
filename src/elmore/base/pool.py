"""A pool of worker processes that survives the death of any of them."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar, cast

from elmore.base.messages import shown
from elmore.base.worker import PROGRAM, Start, Worker, call, read_reply, write_message
from elmore.errors import ConfigError, ElmoreError

__all__ = ["Pool", "Request"]

_T = TypeVar("_T")
# A request that ends its worker so often is itself the reason.
_ATTEMPTS = 3
_MAX_WORKERS = 4096
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """Work for one worker.

    Attributes:
        name: for messages, such as "shard 3".
        fields: JSON values.
        data: bytes that are sent as they are.
    """

    name: str
    fields: Mapping[str, Any]
    data: bytes = b""


class Pool(contextlib.AbstractContextManager["Pool"]):
    """Worker processes that perform requests.

    When a worker dies (out of memory, kill -9), another process takes its place and the request is
    repeated.

    Args:
        start: makes a worker ready; called once in each process.
        n_workers: how many.
        setup: JSON values for `start`.
        environment: variables to set in the processes.
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
        self._own: Worker | None = start(setup or {}) if in_process else None
        hello = call(start, setup or {})
        self._processes = [
            _WorkerProcess(hello, environment or {}) for _ in range(0 if in_process else n_workers)
        ]
        self._idle: queue.SimpleQueue[_WorkerProcess] = queue.SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        # A thread for each process does nothing but wait for its replies.
        self._threads = ThreadPoolExecutor(n_workers)
        # Of the first worker that was ready; all others must have loaded the same.
        self._facts: dict[str, Any] | None = None
        self._lock = threading.Lock()
        self._closing = False

    def __enter__(self) -> Pool:
        try:
            for process in self._processes:
                process.open()  # it gets ready while the caller does something else
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *details: object) -> None:
        self._closing = True
        for process in self._processes:
            process.kill()  # nothing is lost: they write files atomically
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.close()

    def facts(self) -> dict[str, Any]:
        """Wait until a worker is ready; its facts."""
        if self._own is not None:
            return self._own.facts
        self._attempt(self._processes[0].ready, "it is started again")
        return self._checked(self._processes[0].facts)

    def map(
        self, requests: Iterable[Request], *, in_order: bool = False
    ) -> Iterator[tuple[Request, dict[str, Any]]]:
        """Perform requests; yield each with its reply.

        Requests are taken a few ahead of the replies, in the calling thread.

        Args:
            requests: what to do.
            in_order: yield in the order of the requests, not as they are done.
        """
        if self._own is not None:
            for request in requests:
                yield request, self._own.perform(request.fields, request.data)
            return
        source = iter(requests)
        waiting: dict[Future[dict[str, Any]], Request] = {}
        while True:
            # Two for each worker, so that none waits for the caller to read the next one.
            while len(waiting) < 2 * len(self._processes) and (item := next(source, None)):
                waiting[self._threads.submit(self._perform, item)] = item
            if not waiting:
                return
            first = [next(iter(waiting))]  # a dict keeps the order of insertion
            done = first if in_order else wait(waiting, return_when=FIRST_COMPLETED).done
            for future in done:
                yield waiting.pop(future), future.result()

    def _perform(self, request: Request) -> dict[str, Any]:
        """Have a request done, by another process if one dies."""
        process = self._idle.get()
        try:
            reply = self._attempt(lambda: process.ask(request), f"{request.name} is repeated")
            # Asked after every reply, because the process may have been replaced in
            # the meantime.
            self._checked(process.facts)
            return reply
        finally:
            self._idle.put(process)

    def _attempt(self, action: Callable[[], _T], remedy: str) -> _T:
        attempt = 1
        while True:
            try:
                return action()
            except _Died as death:
                if self._closing or attempt == _ATTEMPTS:
                    raise ElmoreError(
                        f"{death} ({attempt} times in a row), perhaps for lack of memory; run "
                        "it again with fewer workers"
                    ) from None
                _log.warning("%s; %s", death, remedy)
                attempt += 1

    def _checked(self, facts: dict[str, Any] | None) -> dict[str, Any]:
        """Refuse a worker that loaded something other than the first one did."""
        with self._lock:
            if self._facts is None:
                self._facts = facts or {}
            if (facts or {}) != self._facts:
                raise ElmoreError(
                    "the model or the software changed during the run; run it again with --force"
                )
            return self._facts


class _Died(Exception):
    """A worker process ended before it replied."""


class _WorkerProcess:
    """One worker process at a time; started when it is needed, and again after a death."""

    def __init__(self, hello: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self._hello = hello
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # kill() is called while another thread waits in ask()
        self._closed = False
        self.facts: dict[str, Any] | None = None

    def open(self) -> None:
        """Start the process if it does not run, without waiting until it is ready."""
        self._running()

    def ready(self) -> subprocess.Popen[bytes]:
        """Wait until the process is ready, and its facts are known."""
        process = self._running()
        if self.facts is None:
            self.facts = _receive(process)
        return process

    def ask(self, request: Request) -> dict[str, Any]:
        """Send a request and wait for its reply."""
        process = self.ready()
        _send(process, request.fields, request.data)
        return _receive(process)

    def kill(self) -> None:
        """End the process at once, and start no other."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """Release a killed process, when no thread waits for it any more."""
        if self._process is not None:
            self._process.wait()
            _close_pipes(self._process)

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise _Died("the pool was closed")
            if self._process is not None and self._process.poll() is None:
                return self._process
            if self._process is not None:
                _close_pipes(self._process)
            self.facts = None
            self._process = process = self._spawn()
        _send(process, self._hello, b"")
        return process

    def _spawn(self) -> subprocess.Popen[bytes]:
        # A plain process rather than multiprocessing: nothing of the caller, its threads least of
        # all, is forked, and its main module is not imported again.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        try:
            return subprocess.Popen(  # noqa: S603 - this very Python and package
                [sys.executable, "-c", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path, **self._environment},
            )
        except OSError as error:
            raise ElmoreError(
                f"cannot start a worker process: {shown(error, 100)}; use fewer workers"
            ) from error


def _send(process: subprocess.Popen[bytes], fields: Mapping[str, Any], data: bytes) -> None:
    with contextlib.suppress(OSError):  # a dead process is noticed when its reply does not come
        write_message(cast(BinaryIO, process.stdin), fields, data)


def _receive(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    reply = read_reply(cast(BinaryIO, process.stdout))
    if reply is None:
        raise _Died(f"a worker process ended with code {process.wait()}")
    return reply


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # what could not be sent to a dead process
            cast(BinaryIO, pipe).close()

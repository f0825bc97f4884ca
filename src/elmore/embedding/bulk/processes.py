"""A pool of worker processes that outlives the death of any of them."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, BinaryIO, cast

from elmore._remote_errors import rebuilt_error
from elmore.embedding.bulk.job import Job
from elmore.errors import ConfigError, ElmoreError

__all__ = ["Pool"]

_CHILD = "from elmore.embedding.bulk.worker import serve; serve()"
# A shard that ends its worker so often is the reason itself.
_TRIES = 3
_MOST_WORKERS = 4096
_Request = tuple[dict[str, Any], list[str]]
_logger = logging.getLogger(__name__)


class _Died(Exception):
    """A worker process ended before it replied."""


class _Worker:
    """One process at a time, with the model loaded; started when it is needed, and again."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False
        self.facts: dict[str, Any] | None = None

    def ask(self, request: dict[str, Any], texts: list[str]) -> dict[str, Any]:
        """Send a request and wait for its reply."""
        process = self._started()
        try:
            if self.facts is None:
                self.facts = _receive(process)
            _send(process, request, texts)
            return _receive(process)
        except _Died:
            self.facts = None
            raise

    def start(self) -> dict[str, Any]:
        """Wait until the model is loaded, and give what the worker tells of it."""
        process = self._started()
        if self.facts is None:
            self.facts = _receive(process)
        return self.facts

    def open(self) -> None:
        """Start the process if it does not run; its model is loaded in the background."""
        self._started()

    def kill(self) -> None:
        """End the process at once, and start no other: all it writes is atomic."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """Let go of a process that was killed, when no thread waits for it any more."""
        if self._process is not None:
            self._process.wait()
            _close_pipes(self._process)

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise _Died("closed")
            if self._process is not None and self._process.poll() is None:
                return self._process
            if self._process is not None:
                _close_pipes(self._process)
            self.facts = None
            count = str(self._job.threads)
            path = os.pathsep.join(entry for entry in sys.path if entry)
            self._process = subprocess.Popen(  # noqa: S603 - this very Python and package
                [sys.executable, "-c", _CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Libraries read these when they are loaded; the count must not depend on the
                # number of workers, or the last bits might.
                env={
                    **os.environ,
                    "PYTHONPATH": path,
                    "OMP_NUM_THREADS": count,
                    "MKL_NUM_THREADS": count,
                    "OPENBLAS_NUM_THREADS": count,
                },
            )
            process = self._process
        _send(process, self._job.to_json(), [])
        return process


class Pool(contextlib.AbstractContextManager["Pool"]):
    """Worker processes that embed shards.

    Args:
        job: what they do.
        n_workers: how many.
    """

    def __init__(self, job: Job, n_workers: int) -> None:
        if not 1 <= n_workers <= _MOST_WORKERS:
            raise ConfigError(
                f"workers={n_workers} is out of range; pass a number from 1 to {_MOST_WORKERS}"
            )
        self._workers = [_Worker(job) for _ in range(n_workers)]
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(n_workers)
        self._closing = False
        for worker in self._workers:
            self._idle.put(worker)

    def __exit__(self, *details: object) -> None:
        self._closing = True
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()

    def open(self) -> None:
        """Start all processes; their models are loaded in the background."""
        for worker in self._workers:
            worker.open()

    def start(self) -> dict[str, Any]:
        """Wait for the first process, and give what it tells of its model and software."""
        return self._trying(self._workers[0].start, "it is started again")

    def map(self, requests: Iterable[_Request]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Perform requests; give each with its reply, as they are done.

        Requests are taken a few ahead, in the calling thread.
        """
        expected = self.start()
        waiting: dict[Future[dict[str, Any]], dict[str, Any]] = {}
        source = iter(requests)
        most = 2 * len(self._workers)
        while True:
            while len(waiting) < most and (item := next(source, None)) is not None:
                future = self._threads.submit(self._perform, *item, expected)
                waiting[future] = item[0]
            if not waiting:
                return
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield waiting.pop(future), future.result()

    def _perform(
        self, request: dict[str, Any], texts: list[str], expected: dict[str, Any]
    ) -> dict[str, Any]:
        """Have a request done, by another process if one dies."""
        worker = self._idle.get()
        try:
            reply = self._trying(
                lambda: worker.ask(request, texts), f"shard {request['number']} is done again"
            )
        finally:
            self._idle.put(worker)
        if worker.facts != expected:
            raise ElmoreError("the model changed while it was used; run it again with --force")
        return reply

    def _trying(self, action: Callable[[], dict[str, Any]], then: str) -> dict[str, Any]:
        deaths = 0
        while True:
            try:
                return action()
            except _Died as death:
                deaths += 1
                if self._closing or deaths == _TRIES:
                    raise ElmoreError(
                        f"{death} {deaths} times, perhaps for lack of memory; run it again with "
                        "fewer workers to go on"
                    ) from None
                _logger.warning("%s; %s", death, then)


def _send(process: subprocess.Popen[bytes], request: dict[str, Any], texts: list[str]) -> None:
    data = json.dumps(texts).encode() if texts else b""
    stdin = cast(BinaryIO, process.stdin)
    # A process that is gone is noticed when its reply does not come.
    with contextlib.suppress(BrokenPipeError, ValueError):
        stdin.write(json.dumps({**request, "n_bytes": len(data)}).encode() + b"\n")
        stdin.write(data)
        stdin.flush()


def _receive(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    reply = b""
    with contextlib.suppress(ValueError):  # closed
        reply = cast(BinaryIO, process.stdout).readline()
    if not reply.endswith(b"\n"):
        raise _Died(f"a worker process ended with code {process.wait()}")
    result: dict[str, Any] = json.loads(reply)
    if "error" in result:
        raise rebuilt_error(result)
    return result


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            cast(BinaryIO, pipe).close()

"""Processes that perform tasks side by side; replies come in the order of the requests."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, cast

from elmore._machine import available_threads
from elmore._remote_errors import error_facts, rebuilt_error
from elmore.errors import ConfigError, ElmoreError
from elmore.training.worker_tasks import perform

__all__ = ["Workers", "serve"]

_Request = tuple[dict[str, Any], bytes]
# Plain processes rather than multiprocessing: nothing of the caller is forked or imported again.
_CHILD = "from elmore.training.worker_processes import serve; serve()"
_SMALL_CORPUS = 1 << 20  # bytes; not worth starting processes


class Workers(contextlib.AbstractContextManager["Workers"]):
    """Processes that `perform` requests; with one worker, the calling process itself.

    Args:
        n_workers: processes to start.
    """

    def __init__(self, n_workers: int) -> None:
        self._n_workers = n_workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(n_workers)

    @classmethod
    def of(cls, n_workers: int | None, paths: Iterable[Path]) -> Workers:
        """Make as many workers as are wanted, or as fit the machine and the files."""
        if n_workers is None:
            small = sum(os.path.getsize(path) for path in paths) <= _SMALL_CORPUS
            n_workers = 1 if small else available_threads()
        if not 1 <= n_workers <= 4096:
            raise ConfigError(f"workers={n_workers} is out of range; pass a number from 1 to 4096")
        return cls(n_workers)

    def __enter__(self) -> Workers:
        if self._n_workers > 1:
            path = os.pathsep.join(entry for entry in sys.path if entry)
            for _ in range(self._n_workers):
                process = subprocess.Popen(  # noqa: S603 - this very Python and package
                    [sys.executable, "-c", _CHILD],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": path},
                )
                self._processes.append(process)
                self._idle.put(process)
        return self

    def __exit__(self, *details: object) -> None:
        for process in self._processes:
            process.kill()  # all they write is atomic
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            with contextlib.suppress(OSError):
                process.communicate()

    def map(self, requests: Iterable[_Request]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Perform requests; give each with its reply, in order.

        Requests are taken a few ahead of their replies, in the calling thread.
        """
        if self._n_workers == 1:
            for request, data in requests:
                yield request, perform(request, data)
            return
        ahead = 2 * self._n_workers
        waiting: deque[tuple[dict[str, Any], Future[dict[str, Any]]]] = deque()
        for request, data in requests:
            waiting.append((request, self._threads.submit(self._ask, request, data)))
            if len(waiting) > ahead:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()

    def _ask(self, request: dict[str, Any], data: bytes) -> dict[str, Any]:
        process = self._idle.get()
        try:
            stdin, stdout = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
            reply = b""
            with contextlib.suppress(BrokenPipeError):
                stdin.write(json.dumps({**request, "n_bytes": len(data)}).encode() + b"\n")
                stdin.write(data)
                stdin.flush()
                reply = stdout.readline()
            if not reply.endswith(b"\n"):
                raise ElmoreError(
                    f"a worker process ended with code {process.wait()}, perhaps for lack of "
                    "memory; run it again, with fewer workers, to go on"
                )
        finally:
            self._idle.put(process)
        result: dict[str, Any] = json.loads(reply)
        if "error" in result:
            raise rebuilt_error(result)
        return result


def serve() -> None:
    """Perform the requests on stdin and reply on stdout, until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whoever prints must not disturb
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["n_bytes"])
        if len(data) < request["n_bytes"]:
            return
        try:
            reply = perform(request, data)
        except ElmoreError as error:
            reply = error_facts(error)
        try:
            replies.write(json.dumps(reply).encode() + b"\n")
            replies.flush()
        except BrokenPipeError:
            return

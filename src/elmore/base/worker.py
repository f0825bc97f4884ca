"""The program of a worker process, and the messages between it and the pool.

A message is a line of JSON with the number of bytes that follow it; a reply is a line of JSON.
The first message names the function that makes the process ready, the others are requests.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from elmore import errors
from elmore.base.messages import shown
from elmore.errors import ElmoreError, InputError

__all__ = ["PROGRAM", "Start", "Worker", "call", "read_reply", "serve", "write_message"]

PROGRAM = "from elmore.base.worker import serve; serve()"


@dataclass(frozen=True)
class Worker:
    """A process that is ready to work.

    Attributes:
        perform: does one request; takes its fields and data, returns JSON values. It may run again
            for the same request after a process died, so it must leave nothing half done.
        facts: what the results depend on besides the requests, such as the model that was loaded.
            It must be the same in every worker.
    """

    perform: Callable[[Mapping[str, Any], bytes], dict[str, Any]]
    facts: dict[str, Any] = field(default_factory=dict)


# Makes a process ready. A function at the top of a module, so that another process can import it.
Start = Callable[[Mapping[str, Any]], Worker]


def write_message(stream: BinaryIO, fields: Mapping[str, Any], data: bytes) -> None:
    """Send a message to a worker."""
    stream.write(json.dumps({"fields": fields, "n_bytes": len(data)}).encode() + b"\n")
    stream.write(data)
    stream.flush()


def read_reply(stream: BinaryIO) -> dict[str, Any] | None:
    """Wait for the reply of a worker; None if it died before it replied.

    Raises:
        ElmoreError: the error that the worker met.
    """
    line = stream.readline()
    # Half a line is what a process wrote before it was killed.
    if not line.endswith(b"\n"):
        return None
    reply: dict[str, Any] = json.loads(line)
    if "error" in reply:
        raise _rebuilt(reply)
    return reply


def call(start: Start, setup: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the first message: call `start` with `setup`."""
    return {"module": start.__module__, "function": start.__qualname__, "setup": setup}


def serve() -> None:
    """Answer the messages on stdin; end at once when stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # prints must not mix with the replies
    # A thread listens even while a request runs, so that a worker notices at once when its
    # parent dies.
    messages: queue.SimpleQueue[tuple[dict[str, Any], bytes]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, messages), daemon=True).start()
    worker: Worker | None = None
    while True:
        fields, data = messages.get()
        try:
            if worker is None:
                worker = _started(fields)
                reply = worker.facts
            else:
                reply = worker.perform(fields, data)
        except ElmoreError as error:
            reply = _described(error)
        except MemoryError:
            reply = _described(ElmoreError("out of memory; use fewer workers"))
        except Exception as error:
            what = f"unexpected {type(error).__name__} in a worker process"
            reply = _described(ElmoreError(f"{what}: {shown(error, 200)}; please report it"))
        try:
            replies.write(json.dumps(reply).encode() + b"\n")
            replies.flush()
        except OSError:
            return  # nobody reads it any more


def _listen(stream: BinaryIO, messages: queue.SimpleQueue[tuple[dict[str, Any], bytes]]) -> None:
    """Pass messages on. At the end of the stream the parent is gone, even if it was killed."""
    while line := stream.readline():
        message = json.loads(line)
        data = stream.read(message["n_bytes"])
        if len(data) == message["n_bytes"]:
            messages.put((message["fields"], data))
    os._exit(0)  # a file that is not complete has no name yet


def _started(fields: Mapping[str, Any]) -> Worker:
    start = getattr(importlib.import_module(fields["module"]), fields["function"])
    worker: Worker = start(fields["setup"])
    return worker


def _described(error: ElmoreError) -> dict[str, Any]:
    """An error as JSON."""
    return {
        "error": type(error).__name__,
        "message": str(error),
        "file": getattr(error, "file", None),
        "line": getattr(error, "line", None),
    }


def _rebuilt(reply: Mapping[str, Any]) -> ElmoreError:
    """The error that another process described."""
    kind = getattr(errors, reply["error"], ElmoreError)
    error: ElmoreError = kind(reply["message"])
    if isinstance(error, InputError):
        # They are in the message already, so the constructor must not add them again.
        error.file, error.line = reply["file"], reply["line"]
    return error

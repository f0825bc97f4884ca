"""The service in a process of its own, and plain sockets to talk to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from elmore import Elmo
from elmore.serve.app import make_app
from elmore.serve.settings import Settings

_PROGRAM = """
import json, logging, resource, sys
logging.basicConfig(format="%(message)s")
from elmore import Elmo
from elmore.serve.server import bind, serve
from elmore.serve.settings import Settings
given = json.loads(sys.argv[2])
if files := given.pop("files", None):
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
listener = bind("127.0.0.1", 0)
settings = Settings(**given)
tell = lambda: print("at", listener.getsockname()[1], flush=True)
serve(Elmo.load(sys.argv[1], threads=1), settings, listener, started=tell)
"""


def serving(elmo: Elmo, **settings: Any) -> TestClient:
    """The service in this process; `with` starts it."""
    return TestClient(make_app(elmo, Settings(**settings)), base_url="http://localhost")


class Running:
    """A process that serves."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port

    def connect(self, seconds: float = 20) -> socket.socket:
        """Open a plain connection."""
        return socket.create_connection(("127.0.0.1", self.port), seconds)

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Send one request on a connection of its own: (status, JSON)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            if body is None:
                connection.request("GET", path, headers=headers)
            else:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                kind = {"Content-Type": "application/json", **headers}
                connection.request("POST", path, data, kind)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        return response.status, json.loads(text) if text[:1] in b"{[" else text.decode()

    def metric(self, name: str) -> float:
        """Read one value of /metrics."""
        _, text = self.ask("/metrics")
        for line in text.split("\n"):
            if line.startswith(f"{name} "):
                return float(line.split(" ")[1])
        raise AssertionError(f"no metric {name}")

    def wait_for(self, name: str, value: float, seconds: float = 20) -> None:
        """Wait until a metric has a value."""
        end = time.monotonic() + seconds
        while self.metric(name) != value:
            assert time.monotonic() < end, f"{name} is {self.metric(name)}, not {value}"
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal and wait: (exit code, what it said on stderr)."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


def start(folder: Path, **settings: Any) -> Running:
    """Start the service with settings that the command line does not offer.

    `files` is how many files the process may have open.
    """
    settings = {"hosts": ["localhost", "x", "elsewhere"], **settings}
    return _started([sys.executable, "-c", _PROGRAM, str(folder), json.dumps(settings)])


def start_verb(*arguments: str) -> Running:
    """Start `elmore serve`."""
    return _started([sys.executable, "-m", "elmore", "serve", "--port", "0", *arguments])


def _started(command: list[str]) -> Running:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stderr.readline() if "serve" in command else process.stdout.readline()
    while line.startswith("elmore: warning"):
        line = process.stderr.readline()
    if not line:
        raise AssertionError(f"it did not start: {process.communicate()[1]}")
    port = line.partition("(")[0].strip().rstrip("/").replace(":", " ").split(" ")[-1]
    return Running(process, int(port))


def check_fields(answer: Any, described: Any, where: str) -> None:
    """Compare an answer with the one in the service's description: names and kinds of fields."""
    if isinstance(described, dict):
        assert isinstance(answer, dict), where
        if not where.endswith(" sources"):  # whose keys are names of files
            assert answer.keys() == described.keys(), where
            for name in described:
                check_fields(answer[name], described[name], f"{where} {name}")
    elif isinstance(described, list):
        assert isinstance(answer, list), where
        for one in answer[:1] if described else ():
            check_fields(one, described[0], where)
    elif answer is not None:
        assert type(answer) is type(described), where

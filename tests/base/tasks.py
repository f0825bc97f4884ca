"""What the workers of these tests do; importable in another process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from elmore.base.pool import Worker
from elmore.errors import ConfigError, InputError


def start(setup: Mapping[str, Any]) -> Worker:
    if path := setup.get("refuse"):
        raise ConfigError(f"{path} is refused; pass another")
    return Worker(perform, {"version": setup.get("version")})


def start_and_die(setup: Mapping[str, Any]) -> Worker:
    os._exit(9)


def perform(fields: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    if "die" in fields:
        os.kill(os.getpid(), signal.SIGKILL)
    if fields.get("fail") == "input":
        raise InputError("the line is bad; correct it", file="a.txt", line=7)
    if fields.get("fail") == "memory":
        raise MemoryError
    if fields.get("fail") == "unexpected":
        raise ZeroDivisionError("first line\nsecond line")
    time.sleep(fields.get("seconds", 0))
    return {"size": len(data), "pid": os.getpid(), "threads": os.environ.get("OMP_NUM_THREADS")}

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


def perform(request: Mapping[str, Any]) -> dict[str, Any]:
    if "die" in request:
        os.kill(os.getpid(), signal.SIGKILL)
    if request.get("fail") == "input":
        raise InputError("the line is bad; correct it", file="a.txt", line=7)
    if request.get("fail") == "memory":
        raise MemoryError
    time.sleep(request.get("seconds", 0))
    return {"pid": os.getpid(), "threads": os.environ.get("OMP_NUM_THREADS")}

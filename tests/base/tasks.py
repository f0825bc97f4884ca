"""What the workers of these tests do; importable in another process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmore.base.worker import Worker
from elmore.errors import ConfigError, InputError


def start(setup: Mapping[str, Any]) -> Worker:
    if path := setup.get("refuse"):
        raise ConfigError(f"{path} is refused; pass another")
    facts = {"version": Path(setup["version"]).read_text()} if "version" in setup else {}
    return Worker(perform, facts)


def start_and_die(setup: Mapping[str, Any]) -> Worker:
    os._exit(9)


def perform(fields: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    print("this must not disturb the replies")
    if "die_unless" in fields and not Path(fields["die_unless"]).exists():
        Path(fields["die_unless"]).touch()  # the next attempt succeeds
        os.kill(os.getpid(), signal.SIGKILL)
    if fields.get("fail") == "input":
        raise InputError("the line is bad; correct it", file="a.txt", line=7)
    if fields.get("fail") == "memory":
        raise MemoryError
    if fields.get("fail") == "unexpected":
        raise ZeroDivisionError("first line\nsecond line")
    time.sleep(fields.get("seconds", 0))
    return {"size": len(data), "pid": os.getpid(), "threads": os.environ.get("OMP_NUM_THREADS")}


def die_always(fields: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def start_to_die(setup: Mapping[str, Any]) -> Worker:
    return Worker(die_always)

"""What this process may use of the machine and has used of it: processors and memory."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
from pathlib import Path

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


def available_threads(*, proc: Path = _PROC, cgroup: Path = _CGROUP) -> int:
    """The number of processors that affinity and a container's share of time allow.

    The arguments are where the kernel describes processes and control groups.
    """
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        count = os.cpu_count() or 1
    # A container sees all processors of its host, but is throttled beyond its share of them.
    share = allowed_processors(proc=proc, cgroup=cgroup)
    return count if share is None else max(1, min(count, math.ceil(share)))


def allowed_processors(*, proc: Path = _PROC, cgroup: Path = _CGROUP) -> float | None:
    """How many processors' time the control groups allow; None without a limit."""
    found: list[float] = []
    try:
        lines = (proc / "self" / "cgroup").read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return None
    for line in lines:
        _, controllers, inner = line.split(":", 2)
        if controllers == "":
            folder, names = cgroup, ["cpu.max"]
        elif "cpu" in controllers.split(","):  # version 1
            folder, names = cgroup / "cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        # Every ancestor may set a limit; inside a container the path may start elsewhere.
        parts = [part for part in inner.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            files = [folder.joinpath(*parts[:depth], name) for name in names]
            # Without a limit, the file is absent or its quota is "max" or -1.
            with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
                quota, period = map(int, " ".join(f.read_text("ascii") for f in files).split())
                found += [quota / period] if quota > 0 else []
    return min(found, default=None)


def peak_memory(*, proc: Path = _PROC) -> int | None:
    """The most memory that this process has had, in bytes; None where the system does not tell."""
    # Not getrusage on Linux: its figure includes the parent's before the process was started.
    try:
        for line in (proc / "self" / "status").read_text("ascii").split("\n"):
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    if sys.platform != "darwin":
        return None
    import resource

    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def give_back_memory() -> None:
    """Return freed memory to the system, where the C library is glibc; elsewhere do nothing.

    glibc keeps what was freed in small parts, and a process with several threads keeps it several
    times: hundreds of megabytes after large results.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):  # another C library, such as musl
        return
    trim(0)

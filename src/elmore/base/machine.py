"""What this process may use of the machine and has used of it: processors and memory."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from pathlib import Path

__all__ = ["allowed_processors", "available_threads", "give_back_memory", "peak_memory"]


_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


def available_threads(*, proc: Path = _PROC, cgroup: Path = _CGROUP) -> int:
    """The number of processors that affinity and a container's share of time allow.

    Args:
        proc: where the kernel describes processes; another folder in tests.
        cgroup: where it describes control groups.
    """
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        count = os.cpu_count() or 1
    # A container sees all processors of its host, but is throttled beyond its share of them.
    share = _cgroup_processors(proc, cgroup)
    return count if share is None else max(1, min(count, math.ceil(share)))


def allowed_processors() -> float | None:
    """How many processors' time a container's limit allows; None without a limit."""
    return _cgroup_processors(_PROC, _CGROUP)


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


def _cgroup_processors(proc: Path, root: Path) -> float | None:
    """How many processors' time the control groups allow; None without a limit."""
    found: list[float] = []
    for folder, unified in _cgroup_folders(proc, root):
        if unified:
            try:
                quota, period = (folder / "cpu.max").read_text("ascii").split()
                found.append(int(quota) / int(period))
            except (OSError, ValueError, ZeroDivisionError):
                continue  # absent, or "max"
        else:
            quota_us, period_us = map(
                _number, (folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")
            )
            if quota_us and period_us and quota_us > 0:  # -1 means no limit
                found.append(quota_us / period_us)
    return min(found, default=None)


def _cgroup_folders(proc: Path, root: Path) -> list[tuple[Path, bool]]:
    """List the folders of this process's control groups, and whether each is of version 2."""
    try:
        lines = (proc / "self" / "cgroup").read_text("utf-8").split("\n")
    except (OSError, ValueError):
        return []
    found: list[tuple[Path, bool]] = []
    for line in lines:
        _, colon, rest = line.partition(":")
        controllers, _, inner = rest.partition(":")
        unified = controllers == ""
        if not colon or not (unified or "cpu" in controllers.split(",")):
            continue
        base = root if unified else root / "cpu"
        # Every ancestor may set a limit; inside a container the path may start elsewhere.
        parts = [part for part in inner.split("/") if part not in ("", "..")]
        found += [(base.joinpath(*parts[:depth]), unified) for depth in range(len(parts), -1, -1)]
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None  # absent, or "max"

"""What this machine leaves to this process: memory and processors."""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["available_memory", "available_threads"]


_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


def available_threads(*, proc: Path = _PROC, cgroup: Path = _CGROUP) -> int:
    """Count the processors that this process may use: affinity, and a container's share of time.

    Args:
        proc: where the kernel tells about processes; another folder in tests.
        cgroup: where it tells about control groups.
    """
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        count = os.cpu_count() or 1
    share = _cgroup_processors(proc, cgroup)
    return count if share is None else max(1, min(count, math.ceil(share)))


def _cgroup_processors(proc: Path, root: Path) -> float | None:
    """Return how many processors' time the control groups allow, or None without a limit."""
    found: list[float] = []
    for folder, unified in _cgroup_folders(proc, root, "cpu"):
        if unified:
            try:
                quota, period = (folder / "cpu.max").read_text("ascii").split()
                found.append(int(quota) / int(period))
            except (OSError, ValueError, ZeroDivisionError):
                continue  # absent, or "max"
        else:
            most, unit = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
            if most and unit and most > 0:
                found.append(most / unit)
    return min(found, default=None)


def _cgroup_folders(proc: Path, root: Path, controller: str) -> list[tuple[Path, bool]]:
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
        if not colon or not (unified or controller in controllers.split(",")):
            continue
        base = root if unified else root / controller
        # Every ancestor may set a limit; inside a container the path may start elsewhere.
        parts = [part for part in inner.split("/") if part not in ("", "..")]
        found += [(base.joinpath(*parts[:depth]), unified) for depth in range(len(parts), -1, -1)]
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None  # absent, or "max"


def _reclaimable(stat_file: Path) -> int:
    """Bytes of file cache that the kernel gives back before it kills."""
    try:
        for line in stat_file.read_text("ascii").split("\n"):
            name, _, value = line.partition(" ")
            if name in ("inactive_file", "total_inactive_file") and value:
                return int(value)
    except (OSError, ValueError):
        pass
    return 0


def _cgroup_memory(proc: Path, root: Path) -> int | None:
    """Return what the control groups of this process leave it, or None without a limit."""
    found: list[int] = []
    for folder, unified in _cgroup_folders(proc, root, "memory"):
        limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        if unified:
            limit, usage = "memory.max", "memory.current"
        most, used = _number(folder / limit), _number(folder / usage)
        if most is not None and used is not None:
            found.append(max(0, most - used + _reclaimable(folder / "memory.stat")))
    return min(found, default=None)


def available_memory(*, proc: Path = _PROC, cgroup: Path = _CGROUP) -> int:
    """Return the bytes this process may still take: machine, control group and ulimit.

    Args:
        proc: where the kernel tells about processes; another folder in tests.
        cgroup: where it tells about control groups.
    """
    candidates: list[int] = []
    try:
        for line in (proc / "meminfo").read_text("ascii").split("\n"):
            if line.startswith("MemAvailable:"):
                candidates.append(int(line.split()[1]) * 1024)
    except (OSError, ValueError, IndexError):
        pass
    if not candidates:
        try:
            candidates.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
        except (OSError, ValueError, AttributeError):
            candidates.append(1 << 31)  # nothing is known: assume a small machine
    group = _cgroup_memory(proc, cgroup)
    if group is not None:
        candidates.append(group)
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY:
            pages = int((proc / "self" / "statm").read_text("ascii").split()[0])
            candidates.append(max(0, most - pages * resource.getpagesize()))
    except (ImportError, OSError, ValueError, IndexError):
        pass
    return min(candidates)

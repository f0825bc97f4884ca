"""What this machine leaves to this process: memory and processors."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["available_memory", "available_threads"]


def available_threads() -> int:
    """Count the processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


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
    try:
        lines = (proc / "self" / "cgroup").read_text("utf-8").split("\n")
    except (OSError, ValueError):
        return None
    found: list[int] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, inner = rest.partition(":")
        if controllers == "":
            base, limit, usage = root, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base, limit, usage = root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        # Every ancestor may set a limit; inside a container the path may start elsewhere.
        parts = [part for part in inner.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            folder = base.joinpath(*parts[:depth])
            most, used = _number(folder / limit), _number(folder / usage)
            if most is not None and used is not None:
                found.append(max(0, most - used + _reclaimable(folder / "memory.stat")))
    return min(found, default=None)


def available_memory(*, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
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

"""What machine this is and what it can do, measured in the same run as everything else."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import numpy
import torch

import elmore


def cpu_model() -> str:
    """Name the processor."""
    for line in Path("/proc/cpuinfo").read_text().split("\n"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def facts() -> dict[str, object]:
    """Describe machine and versions for a result line."""
    flags = Path("/proc/cpuinfo").read_text()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu_model(),
        "isa": [f for f in ("avx2", "avx512f", "avx512_vnni") if f in flags],
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "elmore": elmore.__version__,
        "threads": torch.get_num_threads(),
    }


def sgemm_limit() -> float:
    """Measure GFLOP/s: the better of one two-thread product and two one-thread products."""

    def one(size: int) -> float:
        a, b = torch.randn(size, size), torch.randn(size, size)
        best = 0.0
        for _ in range(4):
            start = time.perf_counter()
            a @ b
            best = max(best, 2 * size**3 / (time.perf_counter() - start) / 1e9)
        return best

    together = one(2048)
    results: list[float] = []

    def alone() -> None:
        torch.set_num_threads(1)
        results.append(one(1024))

    threads = torch.get_num_threads()
    workers = [Thread(target=alone) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    torch.set_num_threads(threads)
    return max(together, sum(results))


class Neighbours:
    """Tells how much of the machine others took between two moments."""

    def __init__(self) -> None:
        self._start = self._read()

    def share(self) -> float:
        """Give the share of all processors' time that was neither ours nor idle."""
        total, busy, own = (b - a for a, b in zip(self._start, self._read(), strict=True))
        return max(0.0, busy - own) / max(total, 1e-9)

    @staticmethod
    def _read() -> tuple[float, float, float]:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields]
        own = os.times()
        idle = ticks[3] + ticks[4]
        return sum(ticks), sum(ticks) - idle, own.user + own.system


def read_bandwidth() -> float:
    """Measure GB/s of reading memory that is in no cache, with all threads."""
    values = torch.ones(64 << 20)
    best = 0.0
    for _ in range(4):
        start = time.perf_counter()
        values.sum()
        best = max(best, values.nbytes / (time.perf_counter() - start) / 1e9)
    return best


class Timing:
    """Wall and CPU seconds of interleaved rounds."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def add(self, job: Callable[[], object]) -> None:
        """Time one run of a job."""
        wall, cpu = time.perf_counter(), time.process_time()
        job()
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)

    @property
    def best(self) -> float:
        """Seconds of the best round."""
        return min(self.wall)

    @property
    def median(self) -> float:
        """Seconds of the median round."""
        return statistics.median(self.wall)

    @property
    def best_cpu(self) -> float:
        """CPU seconds of the best round."""
        return min(self.cpu)


def append_result(path: Path | None, result: dict[str, object]) -> None:
    """Append one JSON line, if there is a file for it."""
    if path is None:
        return
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({**facts(), **result}) + "\n")

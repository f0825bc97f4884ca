"""elmore._machine: memory and processors."""

from __future__ import annotations

from pathlib import Path

from elmore._machine import available_memory, available_threads


def test_available_threads() -> None:
    assert available_threads() >= 1


def _machine(folder: Path, files: dict[str, str]) -> int:
    for name, text in {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 4096 kB\n", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return available_memory(proc=folder / "proc", cgroup=folder / "cg")


def test_available_memory(tmp_path: Path) -> None:
    assert 1 << 20 < available_memory() < 1 << 50
    assert _machine(tmp_path / "plain", {}) == 4096 * 1024
    v2 = {
        "proc/self/cgroup": "0::/a/b\n",
        "cg/a/memory.max": "1000000\n",
        "cg/a/memory.current": "600000\n",
        "cg/a/memory.stat": "anon 5\ninactive_file 100000\n",
        "cg/a/b/memory.max": "max\n",
        "cg/a/b/memory.current": "1\n",
    }
    assert _machine(tmp_path / "v2", v2) == 500_000
    v1 = {
        "proc/self/cgroup": "5:cpu:/x\n4:memory:/docker/1\n",
        "cg/memory/memory.limit_in_bytes": "300000\n",
        "cg/memory/memory.usage_in_bytes": "400000\n",
    }
    assert _machine(tmp_path / "v1", v1) == 0

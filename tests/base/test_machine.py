"""elmore.base.machine: processors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elmore.base.machine import available_threads, give_back_memory, peak_memory


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_available_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_threads() >= 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)

    def threads(name: str, files: dict[str, str]) -> int:
        _write(tmp_path / name, files)
        return available_threads(proc=tmp_path / name / "proc", cgroup=tmp_path / name / "cg")

    v2, v1 = {"proc/self/cgroup": "0::/a/b\n"}, {"proc/self/cgroup": "5:cpu,cpuacct:/x\n"}
    assert threads("none", {}) == 64
    assert threads("unlimited", {**v2, "cg/a/b/cpu.max": "max 100000\n"}) == 64
    assert threads("two and a half", {**v2, "cg/a/cpu.max": "250000 100000\n"}) == 3
    assert threads("a tenth", {**v2, "cg/cpu.max": "10000 100000\n"}) == 1
    quota = {"cg/cpu/cpu.cfs_quota_us": "200000\n", "cg/cpu/cpu.cfs_period_us": "100000\n"}
    assert threads("v1", {**v1, **quota}) == 2
    assert threads("v1, unlimited", {**v1, **quota, "cg/cpu/cpu.cfs_quota_us": "-1\n"}) == 64


def test_peak_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, {"self/status": "Name:\tx\nVmHWM:\t  2048 kB\n"})
    assert peak_memory(proc=tmp_path) == 2048 * 1024
    monkeypatch.setattr("sys.platform", "win32")
    assert peak_memory(proc=tmp_path / "none") is None


@pytest.mark.parametrize("library", [object(), OSError("no library")])
def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch, library: object) -> None:
    def load(_: object) -> object:
        if isinstance(library, OSError):
            raise library
        return library

    monkeypatch.setattr("ctypes.CDLL", load)
    give_back_memory()

"""The C kernels under address and undefined-behaviour sanitizers, without Python around them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from compute.driver import build, host_compiler, run, tool

pytestmark = pytest.mark.integration
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def sanitized(folder: Path, compiler: str) -> Path:
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    command = [compiler, *SANITIZERS, str(probe), "-o", str(folder / "probe")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"{compiler} has no sanitizers")
    return build(folder, compiler, "-O1", "-g", *SANITIZERS)


def test_no_kernel_leaves_its_buffers(tmp_path: Path) -> None:
    run(sanitized(tmp_path, host_compiler()))


@pytest.mark.slow
def test_no_arm_kernel_leaves_its_buffers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator, compiler = tool("qemu-aarch64"), tool("aarch64-linux-gnu-gcc")
    libraries = Path("/usr/aarch64-linux-gnu")  # where Debian has them
    if not libraries.exists():
        pytest.skip("the libraries of ARM are not there")
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")  # needs ptrace, which qemu does not have
    run(emulator, "-cpu", "cortex-a76", "-L", str(libraries), sanitized(tmp_path, compiler))

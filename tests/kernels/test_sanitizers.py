"""The C kernels under address and undefined-behaviour sanitizers, without Python around them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernels.driver import build, host_compiler, run

SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def test_no_kernel_leaves_its_buffers(tmp_path: Path) -> None:
    compiler, probe = host_compiler(), tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    command = [compiler, *SANITIZERS, str(probe), "-o", str(tmp_path / "probe")]
    if subprocess.run(command, check=False).returncode:
        pytest.skip("this compiler has no sanitizers")
    run(build(tmp_path, compiler, "-O1", "-g", *SANITIZERS))

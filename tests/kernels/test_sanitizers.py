"""The C kernels under address and undefined-behaviour sanitizers, without Python around them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ["cpu", "lstm", "panels", "recurrence", "charcnn"]
FLAGS = ["-std=c11", "-O1", "-g", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def build(folder: Path, *flags: str) -> Path:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or not (ROOT / "native").exists():
        pytest.skip("there is no C compiler here, or no sources")
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    program = folder / "driver"
    if subprocess.run([compiler, *flags, str(probe), "-o", str(program)], check=False).returncode:
        pytest.skip("this compiler has no sanitizers")
    driver = Path(__file__).parent / "native" / "driver.c"
    files = [str(driver), *(str(ROOT / "native" / f"{name}.c") for name in SOURCES)]
    command = [compiler, *FLAGS, *flags, "-I", str(ROOT / "native"), *files, "-o", str(program)]
    done = subprocess.run([*command, "-lm"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def test_no_kernel_leaves_its_buffers(tmp_path: Path) -> None:
    program = build(tmp_path, *SANITIZERS)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "0 failures\n"

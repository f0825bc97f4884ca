"""Builds and runs the C driver (native/driver.c), which compares all kernels with plain C."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "native"
SOURCES = ["cpu", "lstm", "panels", "rank", "recurrence", "charcnn"]
FLAGS = ["-std=c11", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]


class Report(NamedTuple):
    """What the driver printed.

    Attributes:
        largest: largest difference from plain C by instruction set and kernel.
        checksum: of all numbers of plain C, the same wherever they were computed.
    """

    largest: dict[str, dict[str, float]]
    checksum: str


def tool(name: str) -> str:
    """The path of a program and the sources beside it; skips the test without either."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on the PATH")
    if not NATIVE.exists():
        pytest.skip("the C sources are not here")
    return found


def host_compiler() -> str:
    return tool(os.environ.get("CC", "cc"))


def build(folder: Path, compiler: str, *flags: str) -> Path:
    program = folder / "driver.exe"  # a suffix that GCC for Windows does not add to
    driver = Path(__file__).parent / "native" / "driver.c"
    files = [str(driver), *(str(NATIVE / f"{name}.c") for name in SOURCES)]
    command = [compiler, *FLAGS, *flags, "-I", str(NATIVE), *files, "-o", str(program), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def run(*command: str | Path) -> Report:
    # A broken kernel may also run for ever.
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    *differences, checksum, failures = done.stdout.splitlines()
    assert failures == "0 failures"
    largest: dict[str, dict[str, float]] = {}
    for line in differences:
        place, number = line.split(": ")
        instruction_set, kernel = place.split(", ", 1)
        largest.setdefault(instruction_set, {})[kernel] = float(number)
    return Report(largest, checksum)

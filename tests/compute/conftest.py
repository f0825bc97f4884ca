"""What the tests of kernels share: each instruction set in turn."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import pytest

from elmore.compute.native import native

ARM = platform.machine() in ("aarch64", "arm64")
X86 = ("plain", "avx2", "avx_vnni", "avx512", "avx512_vnni")
SETS = ("plain", "neon", "neon_dot") if ARM else X86


@pytest.fixture(params=SETS)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Use one instruction set, then the best one again."""
    module = native().module
    if module is None:
        pytest.skip("the C extension is not in use")
    if not module.force(request.param):
        pytest.skip(f"this processor has no {request.param}")
    yield request.param
    next(name for name in reversed(SETS) if module.force(name))

"""What the tests of kernels share: each instruction set in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elmore.compute.native import native

SETS = ("plain", "avx2", "avx512", "avx512_vnni", "neon", "neon_dot")


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

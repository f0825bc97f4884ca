"""Kernels read and write denormal numbers as zero and leave the caller's setting alone."""

from __future__ import annotations

import platform
from collections.abc import Callable

import numpy as np
import pytest

from elmore.compute.native import native

MODULE = native().module
pytestmark = [
    pytest.mark.skipif(MODULE is None, reason="the C extension is not in use"),
    pytest.mark.skipif(
        platform.machine().lower() not in ("x86_64", "amd64", "aarch64", "arm64"),
        reason="denormal numbers are not flushed on this processor",
    ),
]
# The smallest normal number is 1.18e-38; a half or a quarter of this is denormal.
TINY = np.float32(1.2e-38)


def array(*values: float, size: int | None = None) -> np.ndarray:
    found = np.zeros(size or len(values), np.float32)
    found[: len(values)] = values
    return found


def at(values: np.ndarray) -> int:
    return values.ctypes.data


def product() -> np.ndarray:
    weight, value, output = array(1e-20, size=64), array(1e-20), array(1)
    MODULE.panels_affine(at(output), (at(weight), 0, 0, 1, 1, 0), at(value), 0, 0, float("inf"), 1)
    return output


def gates_forward() -> np.ndarray:
    """The forget gate, sigmoid(0), halves the cell."""
    gates, cell, output, kept, tanh_cell = map(array, (0, TINY, 1, 1, 1))
    gates = array(0, 0, 0, 0)
    MODULE.lstm_forward(at(output), at(gates), at(cell), at(kept), at(tanh_cell), 3.0, 1, 1)
    return cell


def gates_backward() -> np.ndarray:
    gates, d_gates, d_cell = array(0.5, 0.5, 0, 0.5), array(1, 1, 1, 1), array(TINY)
    zero, d_output = array(0), array(0)
    MODULE.lstm_backward(
        at(d_gates), at(d_cell), at(d_output), at(gates), at(zero), at(zero), at(zero), 3.0, 1, 1
    )
    return np.concatenate([d_cell, d_gates])


def recurrence() -> np.ndarray:
    gates, cell, hidden, output = array(0, 0, 0, 0), array(TINY), array(0), array(1)
    state, sizes = (at(zeros := array(size=64)), 0, 0, 4, 1, 0), np.ones(1, np.int64)
    workspace = np.zeros(MODULE.recurrence_workspace(1, 1, 1, 0, 0), np.uint8)
    assert MODULE.recurrence(
        at(output), at(cell), at(gates), 0, at(hidden), at(sizes), state, (0, 0, 0, 0, 0, 0),
        3.0, 3.0, 1, 1, 1, at(workspace), 1, 1, 1,
    )  # fmt: skip
    assert not zeros.any()
    return cell


def characters() -> np.ndarray:
    tables, bias, output = array(TINY / 2, size=16), array(0), array(1)
    ids, tails = np.ones(1, np.int32), np.zeros(1, np.int64)
    MODULE.charcnn(at(output), at(ids), at(tails), at(tables), at(bias), 1, 1, 1, 1, 1, 1)
    return output


@pytest.mark.parametrize("kernel", [product, gates_forward, gates_backward, recurrence, characters])
def test_a_denormal_result_is_zero(instruction_set: str, kernel: Callable[[], np.ndarray]) -> None:
    assert not kernel().any()
    assert np.float32(1e-38) / np.float32(8) > 0, "the caller's numbers are flushed too"

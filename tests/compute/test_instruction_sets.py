"""Every instruction set that the machine has gives what the reference defines."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmore.compute.native import native
from elmore.nn import lstm_steps as lstm

NATIVE = native().module
pytestmark = pytest.mark.skipif(NATIVE is None, reason="the C extension is not in use")


def forward(gates: torch.Tensor, before: torch.Tensor, clip: float) -> list[torch.Tensor]:
    now, cell = gates.clone(), before.clone()
    kept = [torch.empty_like(cell) for _ in range(3)]
    rows, cells = before.shape
    NATIVE.lstm_forward(
        kept[2].data_ptr(), now.data_ptr(), cell.data_ptr(), kept[0].data_ptr(),
        kept[1].data_ptr(), clip, rows, cells,
    )  # fmt: skip
    return [now, cell, *kept]


# Sizes around the widths of vectors, where tails are cut.
@pytest.mark.parametrize("cells", [1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 127])
@pytest.mark.parametrize("rows", [1, 5])
def test_both_passes_equal_the_reference(instruction_set: str, rows: int, cells: int) -> None:
    generator = torch.Generator().manual_seed(rows * 1000 + cells)
    gates = torch.randn(rows, 4 * cells, generator=generator) * 4
    before = torch.randn(rows, cells, generator=generator) * 2
    clip = 1.5
    found = forward(gates, before, clip)
    now, cell = gates.clone(), before.clone()
    kept = lstm._Kept(*(torch.empty_like(cell) for _ in range(3)))
    lstm.activate_gates(now, cell, kept, clip)
    for a, b in zip(found, [now, cell, *kept], strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)
    assert cells < 8 or bool((cell.abs() == clip).any()), "no clip was tested"

    # Both go back from the very same values, so that only the backward pass is compared.
    d_output = torch.randn(rows, cells, generator=generator)
    d_cell = torch.randn(rows, cells, generator=generator)
    expected, d_expected = torch.empty_like(now), d_cell.clone()
    lstm.differentiate_gates(expected, d_expected, d_output, now, kept, before, clip)
    got, d_got = torch.empty_like(now), d_cell.clone()
    NATIVE.lstm_backward(
        got.data_ptr(), d_got.data_ptr(), d_output.data_ptr(), now.data_ptr(),
        kept.cell.data_ptr(), kept.tanh_cell.data_ptr(), before.data_ptr(), clip, rows, cells,
    )  # fmt: skip
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(d_got, d_expected, atol=1e-6, rtol=1e-5)


@given(st.floats(width=32, allow_nan=False))
def test_any_number_stays_in_range(value: float) -> None:
    gates = torch.full((1, 4), value)
    now, cell, *_ = forward(gates, torch.zeros(1, 1), 3.0)
    exact = torch.tensor([value]).double()
    expected = torch.stack([exact.sigmoid()] * 2 + [exact.tanh(), exact.sigmoid()])
    torch.testing.assert_close(now.flatten().double(), expected.flatten(), atol=4e-7, rtol=0)
    assert bool(cell.abs() <= 3)

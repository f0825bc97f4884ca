"""The hand-written passes through time, forwards and backwards, against plain autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elmore.compute.native import native
from elmore.compute.recurrence import Clips
from elmore.nn.lstm import Packing
from elmore.nn.lstm_steps import LstmSteps

NAMES = ("gates", "state_weight", "projection", "hidden", "cell")


def plain_steps(
    gates: Tensor,
    sizes: tuple[int, ...],
    state_weight: Tensor,
    projection: Tensor | None,
    hidden: Tensor,
    cell: Tensor,
    clips: Clips,
) -> tuple[Tensor, Tensor]:
    """The equations of the cell, one step at a time, for autograd to differentiate."""
    outputs, last = [], list(cell)

    def clip(x: Tensor, bound: float | None) -> Tensor:
        return x if bound is None else x.clamp(-bound, bound)

    for now, size in zip(gates.split(list(sizes)), sizes, strict=True):
        i, f, j, o = (now + hidden[:size] @ state_weight.t()).chunk(4, dim=1)
        cell = torch.sigmoid(f) * cell[:size] + torch.sigmoid(i) * torch.tanh(j)
        cell = clip(cell, clips.cell)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        if projection is not None:
            hidden = clip(hidden @ projection.t(), clips.projection)
        outputs.append(hidden)
        last[:size] = list(cell)
    return torch.cat(outputs), torch.stack(last)


def make_inputs(
    lengths: list[int], *, projected: bool, cells: int = 7, dim: int = 5, seed: int = 0
) -> tuple[tuple[int, ...], dict[str, Tensor | None]]:
    generator = torch.Generator().manual_seed(seed)
    dim = dim if projected else cells

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
        return values.requires_grad_()

    sizes = Packing.plan(torch.tensor(lengths), max(lengths)).sizes
    return sizes, {
        "gates": normal(sum(lengths), 4 * cells, scale=2.0),
        "state_weight": normal(4 * cells, dim, scale=0.5),
        "projection": normal(dim, cells) if projected else None,
        "hidden": normal(len(lengths), dim, scale=0.5),
        "cell": normal(len(lengths), cells, scale=0.5),
    }


def run(
    function: Callable[..., Any], sizes: tuple[int, ...], inputs: dict[str, Any], clips: Clips
) -> tuple[Tensor, Tensor]:
    gates, *rest = (inputs[name] for name in NAMES)
    # A copy of the gates, because LstmSteps uses them up.
    return function(gates.clone(), sizes, *rest, clips)


CLIPS = {
    "both clips": Clips(0.8, 0.6),
    "cell alone": Clips(0.8, None),
    "projection alone": Clips(None, 0.6),
    "no clips": Clips(None, None),
}
LENGTHS = [[6, 6, 6], [9, 4, 4, 1], [1], [5, 3, 2, 2, 1], [1, 1]]


@pytest.mark.parametrize("projected", [True, False], ids=["projection", "no projection"])
@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_gradients_equal_plain_autograd(lengths: list[int], clips: Clips, projected: bool) -> None:
    sizes, inputs = make_inputs(lengths, projected=projected)
    names = [name for name in NAMES if inputs[name] is not None]
    expected = run(plain_steps, sizes, inputs, clips)
    ours = run(LstmSteps.apply, sizes, inputs, clips)
    generator = torch.Generator().manual_seed(1)
    # Both results matter: the loss gives each of their values a weight of its own.
    weights = [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in expected]
    gradients = []
    for result in (expected, ours):
        loss = sum((value * weight).sum() for value, weight in zip(result, weights, strict=True))
        gradients.append(torch.autograd.grad(loss, [inputs[name] for name in names]))
    for value, plain in zip(ours, expected, strict=True):
        torch.testing.assert_close(value, plain, rtol=1e-12, atol=1e-12)
    for name, gradient, plain in zip(names, gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(gradient, plain, rtol=1e-10, atol=1e-11, msg=name)
    # Clips that bite; they must not, where there are none.
    assert clips.cell is None or sum(lengths) < 10 or bool((expected[1].abs() == clips.cell).any())


# The kernel in C, which takes float32 only: what stands above goes through its reference. --------


def choose(monkeypatch: pytest.MonkeyPatch, choice: str) -> None:
    monkeypatch.setenv("ELMORE_NATIVE", choice)
    if choice == "auto" and native().module is None:
        pytest.skip(native().reason)


def in_float32(inputs: dict[str, Tensor | None]) -> dict[str, Tensor | None]:
    return {
        k: None if v is None else v.detach().float().requires_grad_() for k, v in inputs.items()
    }


def results(
    function: Callable[..., Any],
    sizes: tuple[int, ...],
    inputs: dict[str, Tensor | None],
    clips: Clips,
) -> list[Tensor]:
    """Both results and the gradients of everything."""
    output, last = run(function, sizes, inputs, clips)
    loss = output.sin().sum() + last.square().sum()
    names = [name for name in NAMES if inputs[name] is not None]
    gradients = torch.autograd.grad(loss, [inputs[name] for name in names])
    return [output.detach(), last.detach(), *gradients]


@settings(max_examples=100)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    cells=st.integers(1, 70),
    scale=st.sampled_from([0.1, 3.0, 300.0]),
    clips=st.sampled_from(list(CLIPS.values())),
    projected=st.booleans(),
    seed=st.integers(0, 99),
)
def test_kernel_and_reference_agree(
    lengths: list[int], cells: int, scale: float, clips: Clips, projected: bool, seed: int
) -> None:
    """All widths of vectors and their rests; gates that saturate too."""
    sizes, inputs = make_inputs(lengths, projected=projected, cells=cells, dim=3, seed=seed)
    with torch.no_grad():
        inputs["gates"] *= scale
        inputs["state_weight"] *= 0.2
    with pytest.MonkeyPatch.context() as patch:
        choose(patch, "auto")
        ours = results(LstmSteps.apply, sizes, in_float32(inputs), clips)
        patch.setenv("ELMORE_NATIVE", "0")
        plain = results(LstmSteps.apply, sizes, in_float32(inputs), clips)
    for a, b in zip(ours, plain, strict=True):
        assert a.isfinite().all()
        # Where tanh is 1 the kernel may be an ulp beside it, which 1 - tanh^2 shows.
        torch.testing.assert_close(a, b, rtol=1e-4, atol=5e-5)


def test_rounded_products_are_those_of_rounded_factors() -> None:
    """One step from rounded weights and state: the gates stay exact, the products round."""
    sizes, inputs = make_inputs([1, 1, 1], projected=True)
    x = {name: None if v is None else v.detach().float() for name, v in inputs.items()}
    clips = Clips(0.8, 0.6)
    arguments = (sizes, x["state_weight"], x["projection"], x["hidden"], x["cell"], clips)
    output, cell = LstmSteps.apply(x["gates"].clone(), *arguments, True)
    product = (x["hidden"].bfloat16() @ x["state_weight"].t().bfloat16()).float()
    free = Clips(0.8, None)
    kept_output, kept_memory = LstmSteps.apply(
        x["gates"] + product,
        sizes,
        torch.zeros(x["state_weight"].shape[0], x["cell"].shape[1]),
        None,
        torch.zeros_like(x["cell"]),
        x["cell"],
        free,
    )
    torch.testing.assert_close(cell, kept_memory, rtol=0, atol=0)
    expected = (kept_output.bfloat16() @ x["projection"].t().bfloat16()).float().clamp(-0.6, 0.6)
    torch.testing.assert_close(output, expected, rtol=0, atol=0)

"""The hand-written passes through time, forwards and backwards, against plain autograd."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elmore.compute.native import native
from elmore.compute.recurrence import Clips
from elmore.nn.lstm import Packing
from elmore.nn.lstm_steps import LstmSteps, lstm_steps

NAMES = ("gates", "state_weight", "projection", "hidden", "memory")


def plain_steps(
    gates: Tensor,
    sizes: tuple[int, ...],
    state_weight: Tensor,
    projection: Tensor | None,
    hidden: Tensor,
    memory: Tensor,
    clips: Clips,
    clipped: dict[str, float] | None = None,
) -> tuple[Tensor, Tensor]:
    """The equations of the cell, one step at a time, for autograd to differentiate."""
    cells, outputs, last = memory.shape[1], [], list(memory)
    counts = {"cell": [0, 0], "projection": [0, 0]}

    def clip(x: Tensor, bound: float | None, kind: str) -> Tensor:
        if bound is None:
            return x
        counts[kind][0] += int((x.abs() > bound).sum())
        counts[kind][1] += x.numel()
        return x.clamp(-bound, bound)

    for now, size in zip(gates.split(list(sizes)), sizes, strict=True):
        z = now + hidden[:size] @ state_weight.t()
        i, f, j, o = z.split(cells, dim=1)
        memory = torch.sigmoid(f) * memory[:size] + torch.sigmoid(i) * torch.tanh(j)
        memory = clip(memory, clips.cell, "cell")
        hidden = torch.sigmoid(o) * torch.tanh(memory)
        if projection is not None:
            hidden = clip(hidden @ projection.t(), clips.projection, "projection")
        outputs.append(hidden)
        last[:size] = list(memory)
    if clipped is not None:
        clipped.update({kind: n / max(1, total) for kind, (n, total) in counts.items()})
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
        "memory": normal(len(lengths), cells, scale=0.5),
    }


def run(
    function: object,
    sizes: tuple[int, ...],
    inputs: dict[str, Tensor | None],
    clips: Clips,
    clipped: dict[str, float] | None = None,
) -> tuple[Tensor, Tensor]:
    x = inputs
    # A copy of the gates, because LstmSteps uses them up.
    arguments = (x["gates"].clone(), sizes, x["state_weight"], x["projection"], x["hidden"])
    if function is plain_steps:
        return plain_steps(*arguments, x["memory"], clips, clipped)
    return LstmSteps.apply(*arguments, x["memory"], clips)


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
    clipped: dict[str, float] = {}
    expected = run(plain_steps, sizes, inputs, clips, clipped)
    ours = run(LstmSteps, sizes, inputs, clips)
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
    if sum(lengths) > 10:
        assert (clipped["cell"] > 0.05) == (clips.cell is not None)
        assert (clipped["projection"] > 0.05) == (clips.projection is not None and projected)


@pytest.mark.parametrize(("clips", "projected"), list(product(CLIPS.values(), [True, False])))
def test_pieces_of_a_run_equal_the_whole(clips: Clips, projected: bool) -> None:
    """The path without gradients goes on from the last rows of the piece before."""
    sizes, inputs = make_inputs([7, 5, 2], projected=projected)
    values = {k: None if v is None else v.detach() for k, v in inputs.items()}
    expected, last = run(plain_steps, sizes, values, clips)
    hidden, memory, start = values["hidden"], values["memory"].clone(), 0
    pieces = []
    for first, end in ((0, 3), (3, 4), (4, 7)):
        rows = sum(sizes[first:end])
        output = torch.empty(rows, hidden.shape[1], dtype=torch.float64)
        lstm_steps(
            values["gates"][start : start + rows].clone(),
            sizes[first:end],
            values["state_weight"],
            values["projection"],
            hidden,
            memory,
            clips,
            output,
        )
        hidden, start = output[-sizes[end - 1] :], start + rows
        pieces.append(output)
    torch.testing.assert_close(torch.cat(pieces), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(memory, last, rtol=1e-12, atol=1e-12)


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
    function: object, sizes: tuple[int, ...], inputs: dict[str, Tensor | None], clips: Clips
) -> list[Tensor]:
    """Both results and the gradients of everything."""
    output, last = run(function, sizes, inputs, clips)
    loss = output.sin().sum() + last.square().sum()
    names = [name for name in NAMES if inputs[name] is not None]
    gradients = torch.autograd.grad(loss, [inputs[name] for name in names])
    return [output.detach(), last.detach(), *gradients]


@pytest.mark.parametrize("choice", ["0", "auto"])
@pytest.mark.parametrize("projected", [True, False], ids=["projection", "no projection"])
@pytest.mark.parametrize("clips", CLIPS.values(), ids=CLIPS)
def test_float32_equals_plain_autograd(
    choice: str, projected: bool, clips: Clips, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, choice)
    for lengths in LENGTHS:
        sizes, inputs = make_inputs(lengths, projected=projected, cells=19, dim=11)
        with torch.no_grad():
            inputs["state_weight"] *= 0.2  # contractive: a rounding does not grow
        expected = results(plain_steps, sizes, inputs, clips)
        ours = results(LstmSteps, sizes, in_float32(inputs), clips)
        for a, b in zip(ours, expected, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=2e-5)


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
        ours = results(LstmSteps, sizes, in_float32(inputs), clips)
        patch.setenv("ELMORE_NATIVE", "0")
        plain = results(LstmSteps, sizes, in_float32(inputs), clips)
    for a, b in zip(ours, plain, strict=True):
        assert a.isfinite().all()
        # Where tanh is 1 the kernel may be an ulp beside it, which 1 - tanh^2 shows.
        torch.testing.assert_close(a, b, rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize("choice", ["0", "auto"])
def test_without_gradients_it_is_the_same(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, choice)
    sizes, inputs = make_inputs([7, 5, 2], projected=True, cells=19)
    values = {k: v.detach() for k, v in in_float32(inputs).items()}
    expected, last = run(LstmSteps, sizes, values, Clips(0.8, 0.6))
    memory, output = values["memory"].clone(), torch.empty_like(expected)
    lstm_steps(
        values["gates"].clone(),
        sizes,
        values["state_weight"],
        values["projection"],
        values["hidden"],
        memory,
        Clips(0.8, 0.6),
        output,
    )
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(memory, last, rtol=1e-5, atol=1e-6)


def test_rounded_products_are_those_of_rounded_factors() -> None:
    """One step from rounded weights and state: the gates stay exact, the products round."""
    sizes, inputs = make_inputs([1, 1, 1], projected=True)
    x = {name: None if v is None else v.detach().float() for name, v in inputs.items()}
    clips = Clips(0.8, 0.6)
    arguments = (sizes, x["state_weight"], x["projection"], x["hidden"], x["memory"], clips)
    output, memory = LstmSteps.apply(x["gates"].clone(), *arguments, True)
    product = (x["hidden"].bfloat16() @ x["state_weight"].t().bfloat16()).float()
    free = Clips(0.8, None)
    kept_output, kept_memory = LstmSteps.apply(
        x["gates"] + product,
        sizes,
        torch.zeros(x["state_weight"].shape[0], x["memory"].shape[1]),
        None,
        torch.zeros_like(x["memory"]),
        x["memory"],
        free,
    )
    torch.testing.assert_close(memory, kept_memory, rtol=0, atol=0)
    expected = (kept_output.bfloat16() @ x["projection"].t().bfloat16()).float().clamp(-0.6, 0.6)
    torch.testing.assert_close(output, expected, rtol=0, atol=0)

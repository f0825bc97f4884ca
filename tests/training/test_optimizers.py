"""Our optimisers against torch's, whole weights and rows."""

from __future__ import annotations

import pytest
import torch
from small_training import relative
from torch import Tensor

from elmore.nn.losses import RowGradient
from elmore.training.optimizers import (
    Adadelta,
    Adagrad,
    Adam,
    Optimizer,
    Update,
    clip_by_global_norm,
    sum_rows,
)

ROWS, DIM = 9, 4


def gradients(steps: int = 8) -> list[tuple[Tensor, Tensor]]:
    """For each step some distinct rows and a gradient of the whole that is zero elsewhere."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for _ in range(steps):
        ids = torch.randperm(ROWS, generator=generator)[:4].sort().values
        gradient = torch.zeros(ROWS, DIM)
        gradient[ids] = torch.randn(4, DIM, generator=generator)
        made.append((ids, gradient))
    return made


def start() -> Tensor:
    return torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("by_rows", [False, True])
def test_adagrad_is_torchs_without_epsilon(by_rows: bool) -> None:
    theirs, ours = start().requires_grad_(), start()
    reference = torch.optim.Adagrad([theirs], lr=0.2, eps=0, initial_accumulator_value=1)
    optimizer = Adagrad(accumulator=1.0)
    for ids, gradient in gradients():
        theirs.grad = gradient.clone()
        reference.step()
        rows = Update("w", ours, gradient[ids], ids) if by_rows else Update("w", ours, gradient)
        optimizer.step([rows], 0.2)
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-6, atol=1e-7)
    sums = reference.state[theirs]["sum"]
    torch.testing.assert_close(optimizer.state()["w|sum"], sums, rtol=1e-6, atol=0)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_is_torchs(decay: float) -> None:
    theirs, ours = start().requires_grad_(), start()
    bias, our_bias = torch.ones(DIM, requires_grad=True), torch.ones(DIM)
    groups = [{"params": [theirs]}, {"params": [bias], "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=decay)
    optimizer = Adam(betas=(0.8, 0.99), epsilon=1e-6, weight_decay=decay)
    for k, (_, gradient) in enumerate(gradients()):
        theirs.grad, bias.grad = gradient.clone(), gradient[0].clone()
        rate = 0.01 * (k + 1)
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
        optimizer.step([Update("w", ours, gradient), Update("b", our_bias, gradient[0])], rate)
    assert relative(ours, theirs.detach()) < 1e-6
    assert relative(our_bias, bias.detach()) < 1e-6


def test_lazy_adam_moves_touched_rows_only() -> None:
    ours, dense = start(), start()
    optimizer, reference = Adam(weight_decay=0.1), Adam(weight_decay=0.1)
    touched = torch.zeros(ROWS, dtype=torch.bool)
    for step, (ids, gradient) in enumerate(gradients(3)):
        before = ours.clone()
        moments = {k: v.clone() for k, v in optimizer.state().items()}
        optimizer.step([Update("w", ours, gradient[ids], ids)], 0.01)
        reference.step([Update("w", dense, gradient)], 0.01)
        away = torch.ones(ROWS, dtype=torch.bool)
        away[ids] = False
        assert torch.equal(ours[away], before[away])  # no decay either
        assert (ours[ids] != before[ids]).all()
        touched |= ~away
        for key in ("w|first", "w|second"):
            old = moments.get(key, torch.zeros(ROWS, DIM))
            assert torch.equal(optimizer.state()[key][away], old[away])
        if step == 0:  # the first touch of a row is that of dense Adam
            torch.testing.assert_close(ours[ids], dense[ids])
    assert 4 < int(touched.sum()) < ROWS
    assert not torch.allclose(ours, dense)  # dense Adam goes on moving rows


@pytest.mark.parametrize("make", [Adagrad, Adam])
def test_state_goes_on_to_the_bit(make: type[Adagrad | Adam]) -> None:
    whole, parts = start(), start()
    optimizer: Optimizer = make()
    first: Optimizer = make()
    second: Optimizer = make()
    for k, (ids, gradient) in enumerate(gradients()):
        optimizer.step(
            [Update("a.b", whole, gradient), Update("r", whole, gradient[ids], ids)], 0.1
        )
        if k == 4:
            second.load({name: tensor.clone() for name, tensor in first.state().items()})
        half = first if k < 4 else second
        half.step([Update("a.b", parts, gradient), Update("r", parts, gradient[ids], ids)], 0.1)
    assert torch.equal(whole, parts)
    for name, tensor in optimizer.state().items():
        assert torch.equal(tensor, second.state()[name])


def test_a_loaded_state_is_a_copy() -> None:
    """What a run saved must not change under the file writer's hands."""
    weight, optimizer = start(), Adagrad()
    sums = {"w|sum": torch.ones(ROWS, DIM)}
    optimizer.load(sums)
    optimizer.step([Update("w", weight, torch.ones(ROWS, DIM))], 0.1)
    assert (sums["w|sum"] == 1).all()


def test_rows_are_summed() -> None:
    parts = [
        RowGradient(torch.tensor([3, 1, 3]), torch.ones(3, 2), torch.tensor([1.0, 2, 3])),
        RowGradient(torch.tensor([1, 0]), 10 * torch.ones(2, 2), torch.tensor([4.0, 5])),
    ]
    ids, weight, bias = sum_rows(parts)
    assert ids is not None
    assert ids.tolist() == [0, 1, 3]
    assert weight.tolist() == [[10, 10], [11, 11], [2, 2]]
    assert bias.tolist() == [5, 6, 4]
    whole = RowGradient(None, torch.ones(3, 2), torch.ones(3))
    ids, weight, bias = sum_rows([whole, whole])
    assert ids is None
    assert (weight.tolist(), bias.tolist()) == ([[2, 2]] * 3, [2, 2, 2])


def test_clip_by_global_norm() -> None:
    def pair() -> list[Tensor]:
        return [torch.tensor([3.0, 0]), torch.tensor([[0.0], [4.0]])]

    values = pair()
    assert clip_by_global_norm(values, 1.0) == pytest.approx(5)
    torch.testing.assert_close(values[0], torch.tensor([0.6, 0]))
    torch.testing.assert_close(values[1], torch.tensor([[0.0], [0.8]]))
    for limit in (5.0, 10.0, None):
        values = pair()
        assert clip_by_global_norm(values, limit) == pytest.approx(5)
        assert all(map(torch.equal, values, pair()))
    reference = [torch.nn.Parameter(torch.zeros_like(v)) for v in pair()]
    for parameter, gradient in zip(reference, pair(), strict=True):
        parameter.grad = gradient
    torch.nn.utils.clip_grad_norm_(reference, 2.0)
    values = pair()
    clip_by_global_norm(values, 2.0)
    for parameter, gradient in zip(reference, values, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient)


def test_adadelta_is_torchs() -> None:
    torch.manual_seed(0)
    start = torch.randn(4, 3)
    theirs = torch.nn.Parameter(start.clone())
    other = torch.optim.Adadelta([theirs], lr=1.0, rho=0.95, eps=1e-6)
    weight, own = start.clone(), Adadelta(rho=0.95, epsilon=1e-6)
    for step in range(5):
        gradient = torch.randn(4, 3)
        theirs.grad = gradient.clone()
        other.step()
        if step == 3:  # through a state, as a resumed run
            fresh = Adadelta(rho=0.95, epsilon=1e-6)
            fresh.load(own.state())
            own = fresh
        own.step([Update("w", weight, gradient)], 1.0)
    torch.testing.assert_close(weight, theirs.detach())
    with pytest.raises(ValueError, match="no lazy rows"):
        own.step([Update("w", weight, gradient[:1], torch.tensor([0]))], 1.0)

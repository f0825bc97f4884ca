"""Our optimizers against torch's, complete weights and rows; learning rates."""

from __future__ import annotations

import itertools
import math
from typing import Any, get_args, get_type_hints

import pytest
import torch
from small_training import relative
from torch import Tensor

from elmore.nn.softmax import RowGradient
from elmore.nn.threads import TorchWorkers
from elmore.tasks.recipe import LearningRecipe
from elmore.training.bilm.recipe import OptimizerRecipe, ScheduleRecipe
from elmore.training.optimizers import (
    Adadelta,
    Adagrad,
    Adam,
    Muon,
    Update,
    clip_by_global_norm,
    learning_rate,
    make_optimizer,
    orthogonalize,
    plateau_factor,
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


def test_a_weight_that_was_frozen_at_first_is_corrected_by_its_own_steps() -> None:
    late, fresh = start(), start()
    optimizer, reference = Adam(), Adam()
    for _ in range(50):
        optimizer.step([Update("softmax", torch.ones(3), torch.ones(3))], 0.1)
    for k, (_, gradient) in enumerate(gradients()):
        updates = [Update("w", late, gradient), Update("softmax", torch.ones(3), torch.ones(3))]
        if k == 4:  # and so it is after a resume
            state, optimizer = optimizer.state(), Adam()
            optimizer.load(state)
        optimizer.step(updates, 0.01)
        reference.step([Update("w", fresh, gradient)], 0.01)
    assert torch.equal(late, fresh)


def test_lazy_adam_moves_touched_rows_only() -> None:
    ours, dense = start(), start()
    optimizer, reference = Adam(weight_decay=0.1), Adam(weight_decay=0.1)
    for step, (ids, gradient) in enumerate(gradients(3)):
        before, moments = ours.clone(), {k: v.clone() for k, v in optimizer.state().items()}
        optimizer.step([Update("w", ours, gradient[ids], ids)], 0.01)
        reference.step([Update("w", dense, gradient)], 0.01)
        away = torch.ones(ROWS, dtype=torch.bool)
        away[ids] = False
        assert torch.equal((ours != before).all(dim=1), ~away)  # no decay of the others either
        for key in ("w|first", "w|second"):
            old = moments.get(key, torch.zeros(ROWS, DIM))
            assert torch.equal(optimizer.state()[key][away], old[away])
        if step == 0:  # the first touch of a row is that of dense Adam
            torch.testing.assert_close(ours[ids], dense[ids])
    assert not torch.allclose(ours, dense)  # dense Adam continues to move rows


def test_rows_are_summed() -> None:
    parts = [
        RowGradient(torch.tensor([3, 1, 3]), torch.ones(3, 2), torch.tensor([1.0, 2, 3])),
        RowGradient(torch.tensor([1, 0]), 10 * torch.ones(2, 2), torch.tensor([4.0, 5])),
    ]
    ids, weight, bias = sum_rows(parts)
    assert ids.tolist() == [0, 1, 3]
    assert weight.tolist() == [[10, 10], [11, 11], [2, 2]]
    assert bias.tolist() == [5, 6, 4]
    whole = RowGradient(None, torch.ones(3, 2), torch.ones(3))
    ids, weight, bias = sum_rows([whole, whole])
    assert ids is None
    assert (weight.tolist(), bias.tolist()) == ([[2, 2]] * 3, [2, 2, 2])


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


# Muon -----------------------------------------------------------------------------------------

CELLS, OUT = 10, 6


def slow_newton_schulz(matrix: Tensor, iterations: int) -> Tensor:
    """The iteration as it is published, on one matrix, in double precision.

    It starts from singular values below 1: those of the matrix over its Schatten 4-norm.
    """
    x = matrix.double()
    x = x / (torch.linalg.svdvals(x) ** 4).sum() ** 0.25
    for _ in range(iterations):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def random_matrices(count: int, rows: int, columns: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, rows, columns, generator=generator)


@pytest.mark.parametrize("iterations", [1, 2, 3, 4])
def test_orthogonalize_is_newton_schulz(iterations: int) -> None:
    matrices = 1e-4 * random_matrices(3, 6, 20)
    found = orthogonalize(matrices, iterations=iterations)
    for matrix, result in zip(matrices, found, strict=True):
        assert relative(result.double(), slow_newton_schulz(matrix, iterations)) < 1e-5


def test_a_gradient_of_zeros_does_not_move() -> None:
    assert (orthogonalize(torch.zeros(2, 3, 5), iterations=3) == 0).all()


def lstm_weights() -> dict[str, Tensor]:
    """A layer's matrices, stored transposed as the module does, and its bias."""
    prefix = "forward_layers.0"
    return {
        f"{prefix}.input_weight": random_matrices(1, OUT, 4 * CELLS, 1)[0].t(),
        f"{prefix}.state_weight": random_matrices(1, OUT, 4 * CELLS, 2)[0].t(),
        f"{prefix}.projection": random_matrices(1, CELLS, OUT, 3)[0].t(),
        f"{prefix}.bias": torch.ones(4 * CELLS),
        "tokens.projection": random_matrices(1, 4, OUT, 4)[0],
    }


def lstm_gradients(step: int) -> dict[str, Tensor]:
    return {
        name: random_matrices(1, *w.shape, seed=100 * step + k)[0] if w.dim() == 2 else w / step
        for k, (name, w) in enumerate(lstm_weights().items(), 1)
    }


def test_muon_against_a_slow_one() -> None:
    """Each gate by itself; Adam for biases and for the token layer."""
    rate, momentum, decay = 5.0, 0.9, 0.1
    ours, theirs = lstm_weights(), {n: w.double() for n, w in lstm_weights().items()}
    means = {name: torch.zeros_like(w) for name, w in theirs.items()}
    optimizer = Muon(Adam(), rate=rate, momentum=momentum, weight_decay=decay)
    others = {n: w for n, w in lstm_weights().items() if "bias" in n or "tokens" in n}
    adam = Adam()
    for step in range(1, 5):
        lr, gradients = 0.01 * step, lstm_gradients(step)
        optimizer.step([Update(n, w, gradients[n]) for n, w in ours.items()], lr)
        adam.step([Update(n, w, gradients[n]) for n, w in others.items()], lr)
        for name in set(theirs) - set(others):
            gradient = gradients[name].double()
            means[name] = momentum * means[name] + (1 - momentum) * gradient
            ahead = momentum * means[name] + (1 - momentum) * gradient
            blocks = ahead.chunk(1 if name.endswith("projection") else 4)
            moves = [
                slow_newton_schulz(b.T, 3).T if len(b) > b.shape[1] else slow_newton_schulz(b, 3)
                for b in blocks
            ]
            shrunk = theirs[name] * (1 - lr * rate * decay)
            theirs[name] = shrunk - lr * rate * torch.cat(moves)
    for name, weight in ours.items():
        if name in others:
            assert torch.equal(weight, others[name])
        else:
            assert relative(weight.double(), theirs[name]) < 1e-5


def test_muon_on_threads_gives_the_same_bits() -> None:
    alone, shared = lstm_weights(), lstm_weights()
    workers = TorchWorkers(2)
    one, two = Muon(Adam(), rate=5.0), Muon(Adam(), rate=5.0, run=workers.run)
    for step in range(1, 4):
        gradients = lstm_gradients(step)
        one.step([Update(n, w, gradients[n]) for n, w in alone.items()], 0.01)
        two.step([Update(n, w, gradients[n]) for n, w in shared.items()], 0.01)
    assert all(torch.equal(alone[name], shared[name]) for name in alone)
    name = "forward_layers.0.input_weight"
    assert not torch.equal(alone[name], lstm_weights()[name])


@pytest.mark.parametrize("limit", [2.0, 5.0, None])
def test_clipping_is_torchs(limit: float | None) -> None:
    def pair() -> list[Tensor]:
        return [torch.tensor([3.0, 0]), torch.tensor([[0.0], [4.0]])]

    reference, values = [torch.nn.Parameter(v) for v in pair()], pair()
    for parameter, gradient in zip(reference, pair(), strict=True):
        parameter.grad = gradient
    torch.nn.utils.clip_grad_norm_(reference, limit or 9.0)
    assert clip_by_global_norm(values, limit) == pytest.approx(5)  # the norm before
    for parameter, gradient in zip(reference, values, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


# Learning rates -------------------------------------------------------------------------------


def rate(seen: int, tokens: int = 1, **changes: Any) -> float:
    shape = {"warmup_tokens": 100, "decay": "linear", "decay_share": 0.4, "floor": 0.1}
    schedule = ScheduleRecipe(**{**shape, **changes})
    return learning_rate(schedule, 0.2, 1000, seen=seen, tokens=tokens)


def test_warm_up_is_a_straight_line_that_ends_at_the_peak() -> None:
    values = [rate(seen, tokens=10) for seen in range(0, 101, 10)]
    assert values[0] == pytest.approx(0.02)  # the first of ten steps has a tenth
    assert values[9] == values[10] == 0.2
    steps = [b - a for a, b in itertools.pairwise(values[:10])]
    assert steps == pytest.approx([0.02] * 9)
    assert rate(0, warmup_tokens=0) == 0.2
    assert rate(0, tokens=500) == 0.2  # a step longer than the warm-up


@pytest.mark.parametrize("decay", ["constant", "linear", "cosine"])
def test_the_peak_holds_until_the_decay(decay: str) -> None:
    assert {rate(seen, decay=decay) for seen in range(100, 601)} == {0.2}


def test_linear_decay_ends_at_the_floor() -> None:
    assert rate(800) == pytest.approx(0.2 * (0.1 + 0.9 * 0.5))
    assert rate(1000) == pytest.approx(0.02)
    assert rate(10**9) == pytest.approx(0.02)
    assert rate(1000, floor=0.0) == 0


def test_cosine_decay() -> None:
    for seen in (601, 700, 800, 999, 1000):
        share = (seen - 600) / 400
        expected = 0.2 * (0.1 + 0.9 * (1 + math.cos(math.pi * share)) / 2)
        assert rate(seen, decay="cosine") == pytest.approx(expected)
    assert rate(1000, decay="cosine") == pytest.approx(0.02)


def test_the_rate_halves_when_scores_do_not_rise() -> None:
    assert plateau_factor([], patience=0) == 1
    assert plateau_factor([-3.0, -2.0, -1.0], patience=0) == 1
    assert plateau_factor([-3.0, -3.0, -3.0], patience=0) == 1  # nothing is learned yet
    assert plateau_factor([-3.0, -3.0, -2.0, -2.0], patience=0) == 0.5
    assert plateau_factor([-3.0, -3.0, -4.0], patience=0) == 0.5
    assert plateau_factor([-3.0, -4.0, -4.0], patience=0) == 0.25
    assert plateau_factor([-3.0, -4.0, -4.0], patience=1) == 0.5
    assert plateau_factor([-3.0, -4.0, -2.0, -5.0], patience=1) == 1


@pytest.mark.parametrize("recipe", [OptimizerRecipe, LearningRecipe])
def test_every_name_of_a_recipe_is_an_optimizer_of_its_own(recipe: type) -> None:
    names = get_args(get_type_hints(recipe)["name"])
    muon: Any = {"rate": 1.0, "momentum": 0.9, "rounded": False, "run": None}
    made = [
        make_optimizer(name, betas=(0.9, 0.99), epsilon=1e-8, **(muon if name == "muon" else {}))
        for name in names
    ]
    assert len({type(one) for one in made}) == len(names) >= 2

"""Hand-written gradients against autograd, TensorFlow's own call, and the sampler's chances."""

from __future__ import annotations

import math

import h5py
import numpy as np
import pytest
import torch
from small_models import GOLDEN
from torch import Tensor

from elmore.nn import softmax
from elmore.nn.softmax import (
    LossResult,
    Negatives,
    draw_negatives,
    full_softmax,
    log_likelihoods,
    sampled_softmax,
)

N, DIM, WORDS = 50, 6, 40


def problem(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(N, DIM, generator=generator, dtype=dtype)
    weight = torch.randn(WORDS, DIM, generator=generator, dtype=dtype)
    bias = torch.randn(WORDS, generator=generator, dtype=dtype)
    targets = torch.randint(0, WORDS, (N,), generator=generator)
    return [hidden, targets, weight, bias]


def dense(result: LossResult) -> tuple[Tensor, Tensor]:
    """The gradient of the whole softmax from that of its rows."""
    ids, weight, bias = result.rows
    if ids is None:
        return weight, bias
    return (
        weight.new_zeros(WORDS, DIM).index_add_(0, ids, weight),
        bias.new_zeros(WORDS).index_add_(0, ids, bias),
    )


def plain_sampled(hidden, targets, weight, bias, negatives: Negatives) -> Tensor:
    """The definition, row by row over a table of all pairs; for autograd."""
    prior = [math.log((k + 2) / (k + 1)) / math.log(WORDS + 1) for k in range(WORDS)]
    chance = torch.tensor([1 - (1 - p) ** negatives.tries for p in prior], dtype=hidden.dtype)
    logits = hidden @ weight.t() + bias - chance.log()
    rows = []
    for row, target in zip(logits, targets.tolist(), strict=True):
        others = [k for k in negatives.ids.tolist() if k != target]
        rows.append(row[target] - torch.logsumexp(row[[target, *others]], 0))
    return -torch.stack(rows).sum()


def check(result: LossResult, loss: Tensor, leaves: list[Tensor], scale: float, tol: float) -> None:
    gradients = torch.autograd.grad(loss * scale, leaves)
    assert float(result.total) == pytest.approx(loss.item(), rel=tol)
    for found, expected in zip((result.d_hidden, *dense(result)), gradients, strict=True):
        assert (found - expected).abs().max() <= tol * expected.abs().max()


def test_sampled_softmax_against_autograd() -> None:
    hidden, targets, weight, bias = problem()
    negatives = draw_negatives(16, WORDS, np.random.default_rng(3))
    hits = np.isin(targets.numpy(), negatives.ids.numpy()).sum()
    assert 5 < hits < N  # rows of both kinds
    assert len(targets.unique()) < N  # rows of the softmax that occur twice
    leaves = [x.clone().requires_grad_() for x in (hidden, weight, bias)]
    loss = plain_sampled(leaves[0], targets, *leaves[1:], negatives)
    result = sampled_softmax(hidden, targets, weight, bias, 0.3, negatives)
    # the expected counts are rounded to float32
    check(result, loss, leaves, 0.3, 2e-7)


def test_rounded_products_leave_the_loss_alone() -> None:
    hidden, targets, weight, bias = problem(torch.float32)
    negatives = draw_negatives(16, WORDS, np.random.default_rng(3))
    exact, rounded = (
        sampled_softmax(hidden, targets, weight, bias, 0.3, negatives, rounded=r)
        for r in (False, True)
    )
    assert torch.equal(rounded.total, exact.total)
    for found, expected in zip(
        (rounded.d_hidden, *dense(rounded)), (exact.d_hidden, *dense(exact)), strict=True
    ):
        assert found.dtype == torch.float32
        assert (found - expected).norm() < 0.01 * expected.norm()
    assert not torch.equal(rounded.d_hidden, exact.d_hidden)


def test_every_negative_may_be_a_hit() -> None:
    hidden, _, weight, bias = problem()
    for word in (0, WORDS - 1):  # the ends of the sorted ids
        targets = torch.full((N,), word)
        negatives = Negatives(torch.tensor([word]), 1, WORDS)
        result = sampled_softmax(hidden, targets, weight, bias, 1.0, negatives)
        assert float(result.total) == 0  # nothing is left to compare with
        assert not result.d_hidden.any()
        assert not dense(result)[0].any()


def test_the_loss_does_not_overflow() -> None:
    hidden, targets, weight, bias = problem(torch.float32)
    negatives = draw_negatives(8, WORDS, np.random.default_rng(0))
    result = sampled_softmax(hidden * 1e4, targets, weight, bias, 1.0, negatives)
    for tensor in (result.total, result.d_hidden, *dense(result)):
        assert torch.isfinite(tensor).all()


def test_tensorflows_own_call() -> None:
    with h5py.File(GOLDEN / "bilm-tf/checkpoint/sampled_softmax.hdf5") as file:
        golden = {name: torch.from_numpy(np.asarray(file[name])) for name in file}
    ids = golden["sampled_ids"].long().sort()
    labels, n_words = golden["labels"].long().flatten(), len(golden["b"])
    negatives = Negatives(ids.values, 27, n_words)
    counts = golden["sampled_expected_count"][ids.indices]
    torch.testing.assert_close(negatives.log_expected(ids.values).exp(), counts, rtol=1e-5, atol=0)
    counts = golden["true_expected_count"].flatten()
    torch.testing.assert_close(negatives.log_expected(labels).exp(), counts, rtol=1e-5, atol=0)
    assert np.isin(labels.numpy(), ids.values.numpy()).sum() == 2

    def loss(rows: slice) -> float:
        return float(
            sampled_softmax(
                golden["inputs"][rows], labels[rows], golden["W"], golden["b"], 1.0, negatives
            ).total
        )

    for row, expected in enumerate(golden["loss"].tolist()):
        assert loss(slice(row, row + 1)) == pytest.approx(expected, rel=1e-5)
    assert loss(slice(None)) == pytest.approx(golden["loss"].sum().item(), rel=1e-5)
    # Had the hits been kept, it would show above the tolerance.
    kept = golden["loss_keep_accidental_hits"][0].item()
    assert kept != pytest.approx(golden["loss"][0].item(), rel=1e-4)


# The sampler ----------------------------------------------------------------------------------


class Scripted:
    """A generator that gives the words it is told to, then the rest."""

    def __init__(self, words: list[int], n_words: int) -> None:
        self.values = [math.log(k + 1.5) / math.log(n_words + 1) for k in words]

    def random(self, count: int) -> np.ndarray:
        taken, self.values = self.values[:count], self.values[count:]
        return np.array(taken + [0.0] * (count - len(taken)))


def test_tries_count_the_repeats() -> None:
    script = [7, 2, 7, 7, 30, 2, 11, 5, 5, 1]
    negatives = draw_negatives(4, 32, Scripted(script, 32))  # type: ignore[arg-type]
    assert negatives.ids.tolist() == [2, 7, 11, 30]
    assert negatives.tries == 7  # 11 was the seventh draw
    negatives = draw_negatives(3, 32, Scripted([4, 9, 6, 1], 32))  # type: ignore[arg-type]
    assert (negatives.ids.tolist(), negatives.tries) == ([4, 6, 9], 3)


def test_expected_counts_are_the_chances_of_being_drawn() -> None:
    rng, n_words, rounds = np.random.default_rng(2), 30, 6000
    seen, expected = np.zeros(n_words), np.zeros(n_words)
    for _ in range(rounds):
        negatives = draw_negatives(10, n_words, rng)
        seen[negatives.ids.numpy()] += 1
        expected += negatives.log_expected(torch.arange(n_words)).exp().numpy()
    np.testing.assert_allclose(seen / rounds, expected / rounds, atol=0.035)
    assert expected.sum() / rounds == pytest.approx(10, rel=0.02)


def test_rare_words_keep_their_chance() -> None:
    """1 - (1 - p)^t in float32 would give the last of 800,000 words 0 or twice too much."""
    negatives = Negatives(torch.tensor([0]), 8192, 800_000)
    p = math.log1p(1 / 800_000) / math.log(800_001)
    found = negatives.log_expected(torch.tensor([799_999])).item()
    assert found == pytest.approx(math.log(-math.expm1(8192 * math.log1p(-p))), rel=1e-6)


# The full softmax -----------------------------------------------------------------------------


@pytest.mark.parametrize("block", [16 << 20, 7 * WORDS, 1])
def test_full_softmax_against_autograd(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "_BLOCK", block)
    hidden, targets, weight, bias = problem()
    leaves = [x.clone().requires_grad_() for x in (hidden, weight, bias)]
    logits = leaves[0] @ leaves[1].t() + leaves[2]
    loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
    result = full_softmax(hidden, targets, weight, bias, 0.3)
    assert result.rows.ids is None
    check(result, loss, leaves, 0.3, 1e-12)


@pytest.mark.parametrize("kind", ["sampled", "full"])
def test_no_targets_give_zeros(kind: str) -> None:
    """A process that got no row of a batch adds nothing."""
    hidden, targets, weight, bias = problem()
    hidden, targets = hidden[:0], targets[:0]
    if kind == "sampled":
        negatives = draw_negatives(5, WORDS, np.random.default_rng(0))
        result = sampled_softmax(hidden, targets, weight, bias, 1.0, negatives)
    else:
        result = full_softmax(hidden, targets, weight, bias, 1.0)
    assert float(result.total) == 0
    assert result.d_hidden.shape == (0, DIM)
    assert not result.rows.weight.any()
    assert not result.rows.bias.any()


# Likelihoods -----------------------------------------------------------------------------------


@pytest.mark.parametrize("logits", [1, 5 * WORDS, 1 << 22])
def test_blocks_against_the_plain_softmax(logits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "_BLOCK", logits)
    hidden, targets, weight, bias = problem()
    expected = torch.log_softmax(hidden @ weight.t() + bias, dim=1).gather(1, targets[:, None])[
        :, 0
    ]
    logs = log_likelihoods(hidden, targets, weight, bias)
    torch.testing.assert_close(logs, expected, rtol=1e-12, atol=1e-12)


def test_extreme_logits_and_no_rows() -> None:
    hidden = torch.zeros(2, 3)
    bias = torch.tensor([-1e4, 1e4, 1e4, -1e4])
    logs = log_likelihoods(hidden, torch.tensor([1, 0]), torch.zeros(4, 3), bias)
    np.testing.assert_allclose(logs, [np.log(0.5), -2e4 + np.log(0.5)], rtol=1e-6)
    nothing = log_likelihoods(hidden[:0], torch.zeros(0, dtype=torch.int64), *problem()[2:])
    assert nothing.shape == (0,)

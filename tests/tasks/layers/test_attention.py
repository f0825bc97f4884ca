"""Attention by hand, and rows with nothing to attend to."""

from __future__ import annotations

import torch

from elmore.tasks.layers.encoders import (
    SelfAttentivePooling,
    Trilinear,
    masked_max,
    masked_mean,
    masked_softmax,
)


def test_softmax_over_what_is_real() -> None:
    scores = torch.tensor([[0.0, 1.0, 99.0], [5.0, 5.0, 5.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    weights = masked_softmax(scores, mask)
    torch.testing.assert_close(weights[0, :2], torch.softmax(torch.tensor([0.0, 1.0]), 0))
    assert weights[0, 2] == 0
    assert weights[1].tolist() == [0, 0, 0]
    weights.square().sum().backward()
    assert bool(scores.grad.isfinite().all())
    assert masked_softmax(torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.bool)).shape == (2, 0)


def test_softmax_with_nothing_as_a_choice() -> None:
    """a_j = exp(s_j) / (exp(b) + sum_k exp(s_k)), large scores included."""
    nothing = torch.tensor(-1.0, requires_grad=True)
    scores = torch.tensor([[0.5, 2.0]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    expected = scores.exp() / (nothing.exp() + scores.exp().sum())
    torch.testing.assert_close(masked_softmax(scores, mask, nothing=nothing), expected)
    large = masked_softmax(scores + 500, mask, nothing=nothing + 500)
    torch.testing.assert_close(large, expected)
    empty = masked_softmax(scores, ~mask, nothing=nothing)
    assert empty.tolist() == [[0, 0]]
    (expected.sum() + empty.sum()).backward()
    assert bool(nothing.grad.isfinite())


def test_trilinear_is_the_long_form() -> None:
    torch.manual_seed(0)
    score = Trilinear(4)
    x, q = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    found = score(x, q)
    for i in range(3):
        for j in range(5):
            a, b = x[:, i], q[:, j]
            expected = score.first(a) + score.second(b) + (a * b * score.both).sum(1, keepdim=True)
            torch.testing.assert_close(found[:, i, j], expected.squeeze(1))


def test_pooling_sees_real_tokens_only() -> None:
    values = torch.tensor([[[1.0], [-3.0], [99.0]], [[-1.0], [-2.0], [-99.0]], [[7.0]] * 3])
    mask = torch.tensor([[True, True, False], [True, True, False], [False, False, False]])
    assert masked_mean(values, mask).flatten().tolist() == [-1, -1.5, 0]
    assert masked_max(values, mask).flatten().tolist() == [1, -1, 0]
    assert (-masked_max(-values, mask)).flatten().tolist() == [-3, -2, 0]
    assert masked_max(values[:, :0], mask[:, :0]).flatten().tolist() == [0, 0, 0]
    pooling = SelfAttentivePooling(1)
    pooled = pooling(values, mask).detach()
    assert -3 < float(pooled[0]) < 1
    assert float(pooled[2]) == 0

"""elmore.nn.likelihoods: the full softmax in blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elmore.nn import likelihoods
from elmore.nn.likelihoods import log_likelihoods

N, WORDS, DIM = 37, 50, 6


def problem(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(N, DIM, generator=generator, dtype=dtype)
    weight = torch.randn(WORDS, DIM, generator=generator, dtype=dtype)
    bias = torch.randn(WORDS, generator=generator, dtype=dtype)
    return hidden, torch.randint(WORDS, (N,), generator=generator), weight, bias


@pytest.mark.parametrize(("rows", "words"), [(512, 2048), (5, 7), (1, 1), (37, 50)])
def test_blocks_against_the_plain_softmax(
    rows: int, words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likelihoods, "_BLOCK_ROWS", rows)
    monkeypatch.setattr(likelihoods, "_BLOCK_WORDS", words)
    hidden, targets, weight, bias = problem()
    logits = hidden @ weight.t() + bias
    expected = torch.log_softmax(logits, dim=1).gather(1, targets[:, None])[:, 0]
    logs = log_likelihoods(hidden, targets, weight, bias)
    torch.testing.assert_close(logs, expected, rtol=1e-12, atol=1e-12)


def test_single_precision_sums_in_double() -> None:
    hidden, targets, weight, bias = problem(torch.float32)
    logits = hidden.double() @ weight.double().t() + bias.double()
    expected = torch.log_softmax(logits, dim=1).gather(1, targets[:, None])[:, 0]
    logs = log_likelihoods(hidden, targets, weight, bias)
    assert logs.dtype == torch.float64
    torch.testing.assert_close(logs, expected, rtol=1e-6, atol=2e-6)


def test_extreme_logits_and_no_rows() -> None:
    hidden = torch.zeros(2, 3)
    bias = torch.tensor([-1e4, 1e4, 1e4, -1e4])
    logs = log_likelihoods(hidden, torch.tensor([1, 0]), torch.zeros(4, 3), bias)
    np.testing.assert_allclose(logs, [np.log(0.5), -2e4 + np.log(0.5)], rtol=1e-6)
    nothing = log_likelihoods(hidden[:0], torch.zeros(0, dtype=torch.int64), *problem()[2:])
    assert nothing.shape == (0,)


def test_no_gradients() -> None:
    hidden, targets, weight, bias = problem()
    assert not log_likelihoods(hidden.requires_grad_(), targets, weight, bias).requires_grad

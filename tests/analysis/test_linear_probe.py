"""The linear probe: it reaches the optimum, finds what is there, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elmore.analysis import linear_probe
from elmore.analysis.linear_probe import fit

rng = np.random.default_rng(0)


def features(n: int, dim: int = 24) -> np.ndarray:
    """Correlated, badly scaled and shifted rows."""
    mixing = np.random.default_rng(1).normal(size=(dim, dim))
    scales = np.logspace(-2, 1, dim)
    return ((rng.normal(size=(n, dim)) @ mixing) * scales + 5 * scales).astype(np.float16)


def planted(x: np.ndarray, n_classes: int = 5) -> np.ndarray:
    z = (x.astype(np.float64) - x.astype(np.float64).mean(0)) / x.astype(np.float64).std(0)
    weight = np.random.default_rng(2).normal(size=(x.shape[1], n_classes))
    return (z @ weight).argmax(1)


def test_it_finds_a_linear_signal():
    x = features(5000)
    y = planted(x)
    fitted = fit(x[:3000], y[:3000], x[3000:4000], y[3000:4000], n_classes=5)
    assert (fitted.predict(x[4000:]) == y[4000:]).mean() > 0.93
    assert fitted.accuracy > 0.93
    assert fitted.l2 <= 1e-3  # there is no noise to guard against
    assert fitted.predict(x[:0]).shape == (0,)


def test_it_finds_nothing_in_noise():
    x = features(5000)
    y = rng.choice(5, 5000, p=[0.4, 0.15, 0.15, 0.15, 0.15])
    fitted = fit(x[:3000], y[:3000], x[3000:4000], y[3000:4000], n_classes=5)
    assert abs((fitted.predict(x[4000:]) == y[4000:]).mean() - 0.4) < 0.05


@pytest.mark.parametrize("l2", [1e-2, 1e-4])
def test_the_optimum_of_the_plain_problem(l2, monkeypatch):
    """Against autograd in float64 on explicitly standardised features."""
    monkeypatch.setattr(linear_probe, "_TOLERANCE", 1e-7)
    monkeypatch.setattr(linear_probe, "_BLOCK_ROWS", 100)
    x = features(700, 8)
    y = np.where(rng.random(700) < 0.7, planted(x, 3), rng.integers(0, 3, 700))
    fitted = fit(x, y, x, y, n_classes=3, l2_choices=[l2], max_steps=2000)
    z = torch.from_numpy(x.astype(np.float64))
    scale, mean = z.std(0, correction=0), z.mean(0)
    z = (z - mean) / scale
    weight = torch.zeros(8, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=2000,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(z @ weight + bias, torch.from_numpy(y))
        loss = loss + l2 / 2 * weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    np.testing.assert_allclose(
        (torch.from_numpy(fitted.weight).double() * scale[:, None]).numpy(),
        weight.detach().numpy(),
        atol=5e-3,
    )
    ours = (z * scale + mean) @ torch.from_numpy(fitted.weight).double() + torch.from_numpy(
        fitted.bias
    ).double()
    reference = z @ weight.detach() + bias.detach()
    # The bias is free up to a constant; what is predicted is not.
    difference = (ours.softmax(1) - reference.softmax(1)).abs().max()
    assert float(difference) < 2e-3


def test_strange_rows():
    x = features(400, 6)
    y = planted(x, 3)
    x[:, 2] = 7  # a constant says nothing
    x[:, 3] = x[:, 4]  # twice the same
    fitted = fit(x, y, x, y, n_classes=4)  # a class that no row has
    assert np.isfinite(fitted.weight).all()
    assert fitted.accuracy > 0.5
    again = fit(x, y, x, y, n_classes=4)
    assert np.array_equal(again.weight, fitted.weight)
    unknown = fit(x, y, x, np.full(400, -1), n_classes=4)
    assert unknown.accuracy == 0
    with pytest.raises(ValueError, match="no strength"):
        fit(x, y, x, y, n_classes=4, l2_choices=[])

"""What the probes share: the linear classifier, and a biLM that never saw text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elmore import Elmo
from elmore.analysis.pos import fit
from elmore.analysis.probe import random_model
from elmore.config import Precision

SENTENCE = [["Stocks", "fell", "."]]
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


def test_a_linear_signal_is_found_and_nothing_in_noise() -> None:
    x = features(5000)
    y = planted(x)
    fitted = fit(x[:3000], y[:3000], x[3000:4000], y[3000:4000])
    assert (fitted.predict(x[4000:]) == y[4000:]).mean() > 0.93
    assert fitted.accuracy > 0.93
    assert fitted.l2 <= 1e-3  # there is no noise to guard against
    y = rng.choice(5, 5000, p=[0.4, 0.15, 0.15, 0.15, 0.15])
    fitted = fit(x[:3000], y[:3000], x[3000:4000], y[3000:4000])
    assert abs((fitted.predict(x[4000:]) == y[4000:]).mean() - 0.4) < 0.05


@pytest.mark.parametrize("l2", [1e-2, 1e-4])
def test_the_optimum_of_the_plain_problem(l2: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of mean cross-entropy plus l2 / 2 is zero, on standardised features."""
    monkeypatch.setattr("elmore.analysis.pos._TOLERANCE", 1e-7)
    x = features(700, 8)
    y = np.where(rng.random(700) < 0.7, planted(x, 3), rng.integers(0, 3, 700))
    model = fit(x, y, x, y, l2_choices=[l2], max_steps=2000).model[-1]
    z = (x.astype(np.float64) - x.astype(np.float64).mean(0)) / x.astype(np.float64).std(0)
    errors = model.predict_proba(z) - np.eye(3)[y]
    assert np.abs(errors.T @ z / len(z) + l2 * model.coef_).max() < 1e-4
    assert np.abs(errors.mean(0)).max() < 1e-4


def test_strange_rows() -> None:
    x = features(400, 6)
    y = planted(x, 3)
    x[:, 2] = 7  # a constant says nothing
    x[:, 3] = x[:, 4]  # twice the same
    fitted = fit(x, y, x, y)
    assert fitted.accuracy > 0.5
    assert np.array_equal(fit(x, y, x, y).model[-1].coef_, fitted.model[-1].coef_)
    assert fit(x, y, x, np.full(400, -1)).accuracy == 0


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_the_control_knows_nothing_of_the_model(
    precision: Precision, tiny_elmo: Elmo, tmp_path: Path
) -> None:
    tiny_elmo.save(tmp_path / "model", precision=precision)
    elmo = Elmo.load(tmp_path / "model")
    control = random_model(elmo)
    assert (control.precision, control.config) == (precision, elmo.config)
    (ours,), (theirs,) = (
        elmo.layers(SENTENCE, tokenized=True),
        control.layers(SENTENCE, tokenized=True),
    )
    for layer, other in zip(ours.values, theirs.values, strict=True):
        assert np.abs(layer - other).max() > 1e-2
    (again,) = random_model(elmo).layers(SENTENCE, tokenized=True)
    np.testing.assert_array_equal(again.values, theirs.values)
    (another,) = random_model(elmo, seed=1).layers(SENTENCE, tokenized=True)
    assert np.abs(another.values - theirs.values).max() > 1e-2

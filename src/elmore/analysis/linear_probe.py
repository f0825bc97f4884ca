"""The linear probe: multinomial logistic regression on frozen vectors, by scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.optional import require

__all__ = ["L2_CHOICES", "Fitted", "fit"]

Half = NDArray[np.float16]
Labels = NDArray[np.int64]

# From strong to weak: each fit starts from the one before.
L2_CHOICES = (1e-2, 1e-3, 1e-4, 1e-5)
_BLOCK_ROWS = 16_384
# Largest slope of the mean cross-entropy at which a fit ends.
_TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted classifier.

    Attributes:
        weight: for features as they are, (dim, classes).
        bias: (classes,).
        l2: the strength that was best on the development rows.
        accuracy: there.
        steps: iterations over all fits.
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    l2: float
    accuracy: float
    steps: int

    def predict(self, features: Half) -> Labels:
        """The likeliest class of each row, (n,)."""
        found = np.zeros(len(features), np.int64)
        for start in range(0, len(features), _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            scores = features[rows].astype(np.float32) @ self.weight + self.bias
            found[rows] = scores.argmax(axis=1)
        return found


def fit(
    features: Half,
    labels: Labels,
    dev_features: Half,
    dev_labels: Labels,
    *,
    n_classes: int,
    l2_choices: Sequence[float] = L2_CHOICES,
    max_steps: int = 200,
) -> Fitted:
    """Fit a classifier for each strength of l2 and keep the one that is best on other rows.

    Features are standardised; the mean cross-entropy plus l2/2 times the squared weights is
    minimised by L-BFGS.

    Args:
        features: (n, dim).
        labels: class of each, (n,).
        dev_features: rows to choose l2 by, (m, dim).
        dev_labels: their classes, (m,); -1 for a class that no training row has.
        n_classes: how many classes there are.
        l2_choices: strengths, tried from the largest to the smallest.
        max_steps: limit of iterations for one strength.
    """
    linear_model: Any = require("sklearn.linear_model", "analyze", "the linear probe")
    rows = features.astype(np.float32)
    # In double precision: a float32 sum over a million rows loses digits.
    mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    rows -= mean
    scale = np.sqrt(np.square(rows).mean(axis=0, dtype=np.float64)).astype(np.float32)
    # A feature that hardly varies must not be blown up to the size of the others.
    scale = np.where(scale > 1e-6, scale, np.float32(1))
    rows /= scale
    model = linear_model.LogisticRegression(warm_start=True, max_iter=max_steps, tol=_TOLERANCE)
    best: Fitted | None = None
    steps = 0
    for l2 in sorted(l2_choices, reverse=True):
        # scikit-learn sums the losses that we average.
        model.C = 1 / (l2 * len(rows))
        with warnings.catch_warnings():
            # Few rows and weak l2 have no finite optimum; what max_steps reach is good enough.
            warnings.filterwarnings("ignore", "lbfgs failed to converge")
            model.fit(rows, labels)
        steps += int(model.n_iter_.max())
        plain = _plain(model, n_classes, mean, scale)
        fitted = Fitted(*plain, l2, 0.0, steps)
        accuracy = float((fitted.predict(dev_features) == dev_labels).mean())
        if best is None or accuracy > best.accuracy:
            best = Fitted(*plain, l2, accuracy, steps)
    if best is None:
        raise ValueError("no strength to try; give one or more l2_choices")
    return Fitted(best.weight, best.bias, best.l2, best.accuracy, steps)


def _plain(
    model: Any, n_classes: int, mean: NDArray[np.float32], scale: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights for features as they are, (dim, classes), and biases; classes by their number."""
    coefficients, intercepts = model.coef_, model.intercept_
    if len(model.classes_) == 2:  # scikit-learn keeps the second class alone
        coefficients = np.concatenate([np.zeros_like(coefficients), coefficients])
        intercepts = np.concatenate([[0.0], intercepts])
    weight = np.zeros((len(mean), n_classes), np.float32)
    bias = np.full(n_classes, -np.inf, np.float32)  # a class that no row has is never chosen
    weight[:, model.classes_] = (coefficients / scale).T
    bias[model.classes_] = intercepts - (coefficients / scale) @ mean
    return weight, bias

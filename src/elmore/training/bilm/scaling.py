"""Which perplexity to expect after a number of tokens: curves of earlier runs, as data.

data/scaling.json has one entry per size of model. "constant" are held-out perplexities during a
run at a constant learning rate, "decayed" those at the end of runs whose rate was decayed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from elmore.base.json import from_json, read_json

__all__ = ["Curve", "curves", "expected_perplexity", "nearest_curve", "worth_of_passes"]

_FILE = Path(__file__).parents[2] / "data" / "scaling.json"
# Each pass over the same text is worth less than the one before, and falls to 1/e after this many
# (Muennighoff et al. 2023, "Scaling data-constrained language models").
_WORTH = 15.0
# How often larger or smaller a vocabulary and a model may be than those of a curve.
_MAX_WORDS, _MAX_SIZE = 1.25, 2.5


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What one size of model reached.

    Attributes:
        dim: LSTM cells per direction.
        projection_dim: LSTM output per direction.
        vocabulary: words of the softmax.
        text: what was read.
        constant: tokens and held-out perplexity, at a constant learning rate.
        decayed: the same after the rate was decayed.
    """

    dim: int
    projection_dim: int
    vocabulary: int
    text: str
    constant: tuple[tuple[float, float], ...]
    decayed: tuple[tuple[float, float], ...]

    def at(self, tokens: float) -> float:
        """The perplexity to expect after a complete run over this many different tokens."""
        # The gain of a decay changes slowly with the length of a run, and is known for few lengths:
        # it is interpolated between them.
        gains = [math.log(found / self._constant(seen)) for seen, found in self.decayed]
        places = [math.log(seen) for seen, _ in self.decayed]
        gain = float(np.interp(math.log(tokens), places, gains))
        return self._constant(tokens) * math.exp(gain)

    def _constant(self, tokens: float) -> float:
        lowest, factor, power = _fit(self.constant)
        return math.exp(lowest + factor * tokens**-power)


@lru_cache(maxsize=16)
def _fit(points: tuple[tuple[float, float], ...]) -> tuple[float, float, float]:
    """Fit loss = a + b * tokens ** -c by least squares; (a, b, c)."""
    tokens, losses = np.array([p[0] for p in points]), np.log([p[1] for p in points])
    best = (math.inf, 0.0, 0.0, 0.0)
    # For a given power the other two are linear, so least squares are exact; powers are tried.
    for power in np.linspace(0.05, 0.6, 56):
        columns = np.stack([np.ones_like(tokens), tokens**-power], axis=1)
        (a, b), *_ = np.linalg.lstsq(columns, losses, rcond=None)
        error = float(((columns @ (a, b) - losses) ** 2).sum())
        best = min(best, (error, float(a), float(b), float(power)))
    return best[1:]


@lru_cache(maxsize=1)
def curves() -> tuple[Curve, ...]:
    """All curves that are known."""
    entries = read_json(_FILE)["curves"]
    return tuple(from_json(Curve, entry, what=str(_FILE), fix="restore it") for entry in entries)


def nearest_curve(dim: int, projection_dim: int) -> Curve:
    """The curve of the size that is nearest by its multiplications per token."""

    def distance(curve: Curve) -> float:
        return abs(math.log(dim * projection_dim) - math.log(curve.dim * curve.projection_dim))

    return min(curves(), key=distance)


def worth_of_passes(tokens: int, total: int) -> float:
    """How many different tokens a run over `total` is worth, if only `tokens` are different."""
    passes = total / max(1, tokens)
    if passes <= 1:
        return float(total)
    return tokens * (1 + _WORTH * (1 - math.exp(-(passes - 1) / _WORTH)))


def expected_perplexity(
    dim: int, projection_dim: int, n_words: int, tokens: int, total: int
) -> float | None:
    """The perplexity to expect after a run on text like that of the curve.

    None if the curve does not apply: perplexities over vocabularies of different sizes cannot be
    compared, and a model of a very different size learns at another speed.
    """
    curve = nearest_curve(dim, projection_dim)
    words, size = (
        n_words / curve.vocabulary,
        dim * projection_dim / (curve.dim * curve.projection_dim),
    )
    if not (1 / _MAX_WORDS <= words <= _MAX_WORDS and 1 / _MAX_SIZE <= size <= _MAX_SIZE):
        return None
    return curve.at(max(1.0, worth_of_passes(tokens, total)))

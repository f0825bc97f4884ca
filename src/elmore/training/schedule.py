"""The learning rate as a function of tokens seen or of scores; never of the clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

__all__ = ["Decay", "learning_rate", "plateau_factor"]

Decay = Literal["constant", "cosine", "linear"]


def learning_rate(
    seen: int,
    *,
    peak: float,
    warmup: int,
    total: int,
    decay: Decay,
    decay_from: int,
    floor: float,
) -> float:
    """The learning rate after `seen` tokens.

    Args:
        seen: tokens of all finished steps.
        peak: the rate after the warm-up.
        warmup: tokens over which it rises from zero in a straight line.
        total: tokens of the complete run.
        decay: "constant" stays at the peak; "cosine" and "linear" fall from `decay_from` to
            `floor` * `peak` at `total`.
        decay_from: tokens after which the fall begins.
        floor: share of the peak at the end.
    """
    if seen < warmup:
        return peak * (seen + 1) / (warmup + 1)
    if decay == "constant" or seen <= decay_from:
        return peak
    done = min(1.0, (seen - decay_from) / max(1, total - decay_from))
    left = (1 + math.cos(math.pi * done)) / 2 if decay == "cosine" else 1 - done
    return peak * (floor + (1 - floor) * left)


def plateau_factor(scores: Sequence[float], *, patience: int, factor: float = 0.5) -> float:
    """The share of the rate that is left after evaluations without a better score.

    Scores that equal the first one from the start do not count: nothing is learned yet, and a
    smaller rate would make sure that nothing ever is.

    Args:
        scores: of all evaluations so far; higher is better.
        patience: evaluations without a better score that are forgiven.
        factor: what the rate is multiplied by each time patience runs out.
    """
    best, waited, share = -math.inf, 0, 1.0
    for score in scores:
        if score > best:
            best, waited = score, 0
            continue
        if score == best == scores[0]:
            continue
        waited += 1
        if waited > patience:
            share, waited = share * factor, 0
    return share

"""Figures of corpus linguistics: how words are spread, which belong together, what has changed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
# The logDice of words that only occur together.
_MOST_DICE = 14
# Resamples of the confidence interval.
_RESAMPLES = 500
# Distances that float32 cannot tell apart.
ROUNDING = 1e-6


def dispersion(counts: Numbers, sizes: Numbers) -> float | None:
    """How unevenly a word is spread over documents, by Gries' DP, normalised to end at 1.

    Args:
        counts: of the word in each document, (n,).
        sizes: of the documents, (n,).

    Returns:
        half the sum of the differences between the shares of the word and of the text; None if the
        word is absent or there is one document.
    """
    if not counts.sum() or len(sizes) < 2:
        return None
    parts = sizes / sizes.sum()
    difference = np.abs(counts / counts.sum() - parts).sum() / 2
    return float(difference / (1 - parts.min()))


def log_likelihood(near: Numbers, elsewhere: Numbers, n_near: float, n_elsewhere: float) -> Numbers:
    """Dunning's G2 of words near against elsewhere; negative for those that are rarer near."""
    share = (near + elsewhere) / (n_near + n_elsewhere)
    expected, other = n_near * share, n_elsewhere * share
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = near * np.log(near / expected) + np.where(
            elsewhere > 0, elsewhere * np.log(elsewhere / other), 0
        )
    return np.asarray(2 * terms * np.sign(near - expected))


def log_dice(both: Numbers, one: float, others: Numbers) -> Numbers:
    """Rychlý's logDice of a word and others, at most 14.

    Args:
        both: how often each of the others is near the word, (n,).
        one: how often the word occurs.
        others: how often each of the others occurs, (n,).
    """
    # Windows may overlap, so that a word can be near more often than both occur.
    return np.asarray(_MOST_DICE + np.log2(np.minimum(1, 2 * both / (one + others))))


class Shift(NamedTuple):
    """How far two sets of vectors are from each other; see `senses.change.WordChange`."""

    pairwise: float
    low: float
    high: float
    p: float


def mean_distance(old: Numbers, new: Numbers) -> float:
    """The mean cosine distance between a unit vector of one set and one of the other."""
    # The mean product of all pairs is the product of the means.
    return float(1 - old.mean(axis=0) @ new.mean(axis=0))


def pairwise_shift(old: Numbers, new: Numbers, permutations: int, seed: int) -> Shift:
    """Compare unit vectors of two corpora: a permutation test and a confidence interval."""
    distance, draws = mean_distance(old, new), np.random.default_rng(seed)
    both = np.concatenate([old, new])
    chosen = np.zeros((permutations, len(both)), np.float32)
    for row in chosen:
        row[draws.permutation(len(both))[: len(old)]] = 1
    sums = chosen @ both
    random = 1 - np.einsum("nd,nd->n", sums, both.sum(axis=0) - sums) / (len(old) * len(new))
    p = float((1 + (random >= distance - ROUNDING).sum()) / (1 + permutations))
    means = [
        draws.multinomial(len(one), np.full(len(one), 1 / len(one)), _RESAMPLES) @ one / len(one)
        for one in (old, new)
    ]
    low, high = np.quantile(1 - np.einsum("nd,nd->n", *means), [0.025, 0.975])
    return Shift(distance, float(low), float(high), p)


def divergence(one: Numbers, two: Numbers) -> float:
    """The Jensen-Shannon divergence of two distributions, in bits."""
    mean = (one + two) / 2

    def information(shares: Numbers) -> float:
        some = shares > 0
        return float((shares[some] * np.log2(shares[some] / mean[some])).sum())

    return max(0.0, (information(one) + information(two)) / 2)


def corrected_p(p: Numbers) -> Numbers:
    """Benjamini and Hochberg's correction: the share of false alarms among all as small, (n,)."""
    order = np.argsort(p)
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    result = np.empty(len(p))
    result[order] = np.minimum.accumulate(scaled[::-1])[::-1].clip(max=1)
    return result

"""Figures of corpus linguistics: how evenly words are spread, and which belong together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
# The logDice of words that only occur together.
_MOST_DICE = 14


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

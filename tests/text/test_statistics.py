"""Figures of corpus linguistics, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from elmore.text.statistics import dispersion, log_dice, log_likelihood


def test_dispersion_is_0_for_an_even_word_and_1_for_one_in_the_smallest_document() -> None:
    sizes = np.array([10, 20, 70])
    assert dispersion(np.array([1, 2, 7]), sizes) == pytest.approx(0)
    assert dispersion(np.array([5, 0, 0]), sizes) == pytest.approx(1)
    assert dispersion(np.array([0, 0, 0]), sizes) is None
    assert dispersion(np.array([3]), sizes[:1]) is None


def test_association_is_highest_for_words_that_are_always_together() -> None:
    both = np.array([10, 5, 1])
    dice = log_dice(both, 10, np.array([10, 10, 1000]))
    assert dice[:2] == pytest.approx([14, 13])
    assert dice[2] < 6
    found = log_likelihood(np.array([20.0, 2.0, 1.0]), np.array([0.0, 18.0, 99.0]), 100, 900)
    assert found[0] == pytest.approx(2 * 20 * np.log(10))
    assert found[1] == pytest.approx(0, abs=1e-6)
    assert found[2] < 0  # rarer near than elsewhere

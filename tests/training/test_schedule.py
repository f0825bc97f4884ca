"""The learning rate over a run."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from elmore.training.bilm.recipe import ScheduleRecipe
from elmore.training.optimizers import learning_rate, plateau_factor


def rate(seen: int, tokens: int = 1, **changes: Any) -> float:
    shape = {"warmup_tokens": 100, "decay": "linear", "decay_share": 0.4, "floor": 0.1}
    schedule = ScheduleRecipe(**{**shape, **changes})
    return learning_rate(schedule, 0.2, 1000, seen=seen, tokens=tokens)


def test_warm_up_is_a_straight_line_that_ends_at_the_peak() -> None:
    values = [rate(seen, tokens=10) for seen in range(0, 101, 10)]
    assert values[0] == pytest.approx(0.02)  # the first of ten steps has a tenth
    assert values[9] == values[10] == 0.2
    steps = [b - a for a, b in itertools.pairwise(values[:10])]
    assert steps == pytest.approx([0.02] * 9)
    assert rate(0, warmup_tokens=0) == 0.2
    assert rate(0, tokens=500) == 0.2  # a step longer than the warm-up


@pytest.mark.parametrize("decay", ["constant", "linear", "cosine"])
def test_the_peak_holds_until_the_decay(decay: str) -> None:
    assert {rate(seen, decay=decay) for seen in range(100, 601)} == {0.2}


def test_constant_never_falls() -> None:
    assert rate(5000, decay="constant") == 0.2


def test_linear_decay_ends_at_the_floor() -> None:
    assert rate(800) == pytest.approx(0.2 * (0.1 + 0.9 * 0.5))
    assert rate(1000) == pytest.approx(0.02)
    assert rate(10**9) == pytest.approx(0.02)
    assert rate(1000, floor=0.0) == 0


def test_cosine_decay() -> None:
    for seen in (601, 700, 800, 999, 1000):
        share = (seen - 600) / 400
        expected = 0.2 * (0.1 + 0.9 * (1 + math.cos(math.pi * share)) / 2)
        assert rate(seen, decay="cosine") == pytest.approx(expected)
    assert rate(1000, decay="cosine") == pytest.approx(0.02)


def test_a_decay_from_the_end_is_none() -> None:
    """decay_share 0: nothing is left to fall over, and nothing is divided by zero."""
    assert rate(999, decay_share=0.0) == 0.2
    assert rate(1000, decay_share=0.0) == 0.2
    assert rate(1001, decay_share=0.0) == pytest.approx(0.02)


def test_the_rate_halves_when_scores_do_not_rise() -> None:
    assert plateau_factor([], patience=0) == 1
    assert plateau_factor([-3.0, -2.0, -1.0], patience=0) == 1
    assert plateau_factor([-3.0, -3.0, -3.0], patience=0) == 1  # nothing is learned yet
    assert plateau_factor([-3.0, -3.0, -2.0, -2.0], patience=0) == 0.5
    assert plateau_factor([-3.0, -3.0, -4.0], patience=0) == 0.5
    assert plateau_factor([-3.0, -4.0, -4.0], patience=0) == 0.25
    assert plateau_factor([-3.0, -4.0, -4.0], patience=1) == 0.5
    assert plateau_factor([-3.0, -4.0, -2.0, -5.0], patience=1) == 1

"""The recipe of a run that names none."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from small_training import SMALL, digest, small_data

from elmore.corpus.prepared import Part, Prepared
from elmore.training.bilm.pretrain import choose_recipe, pretrain, run_tokens
from elmore.training.bilm.recipe import Recipe
from elmore.training.run import Run

# Everything small, but for what is fitted.
TINY = {
    key: str(value)
    for key, value in SMALL.items()
    if key not in ("schedule.tokens", "schedule.warmup_tokens", "run.evaluate_tokens")
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return small_data(tmp_path_factory.mktemp("corpus"))


def sized(data: Prepared, tokens: int) -> Prepared:
    return dataclasses.replace(data, training=Part(tokens=tokens, sentences=tokens // 20))


@pytest.mark.parametrize("tokens", [2_000, 51_000, 800_000, 5_000_000])
def test_small_data_get_more_passes_a_short_warm_up_and_evaluations(
    data: Prepared, tokens: int
) -> None:
    own, prepared = Recipe.load("laptop"), sized(data, tokens)
    fitted = choose_recipe(prepared)
    total = run_tokens(prepared, fitted)
    assert own.schedule.epochs < fitted.schedule.epochs <= 6
    assert fitted.schedule.warmup_tokens <= total / 10
    assert total / fitted.run.evaluate_tokens >= 20
    # Nothing else.
    back = dataclasses.replace(fitted, schedule=own.schedule, run=own.run)
    assert back == own


def test_large_data_keep_the_recipe(data: Prepared) -> None:
    assert choose_recipe(sized(data, 100_000_000)) == Recipe.load("laptop")


def test_keys_that_were_given_stay(data: Prepared) -> None:
    prepared = sized(data, 51_000)
    settings = {
        "schedule.epochs": "3",
        "schedule.warmup_tokens": "123456",
        "run.evaluate_tokens": "7",
    }
    fitted = choose_recipe(prepared, settings=settings)
    assert fitted == Recipe.load("laptop", settings)
    fitted = choose_recipe(prepared, settings={"schedule.tokens": "5000"})
    assert (fitted.schedule.epochs, fitted.schedule.tokens) == (2.0, 5000)
    assert (fitted.schedule.warmup_tokens, fitted.run.evaluate_tokens) == (500, 250)


def test_a_resumed_run_keeps_its_own_recipe(data: Prepared, tmp_path: Path) -> None:
    """Also where what it was fitted to is no longer what would be chosen today."""
    started = Recipe.load("laptop", {**TINY, "schedule.epochs": "4"})
    pretrain(data, tmp_path / "run", recipe=started, threads=1)
    assert choose_recipe(data, Run(tmp_path / "run")) == started
    changed = choose_recipe(data, Run(tmp_path / "run"), {"schedule.epochs": "5"})
    assert changed == Recipe.load("laptop", {**TINY, "schedule.epochs": "5"})
    before = digest(tmp_path / "run")
    pretrain(data, tmp_path / "run", resume=True, threads=1)
    assert digest(tmp_path / "run") == before
    assert Run(tmp_path / "run").recipe == started

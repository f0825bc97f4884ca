"""Recipes: shipped ones, own ones, and every way to get a key wrong."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from small_training import SMALL, digest

from elmore.corpus.prepared import Part, Prepared
from elmore.errors import ConfigError
from elmore.training.bilm.pretrain import pretrain
from elmore.training.bilm.recipe import Recipe, fitted_recipe, recipe_names, recipe_text
from elmore.training.run import Run

SECTIONS = [f.name for f in dataclasses.fields(Recipe) if f.name != "name"]
KEYS = [
    f"{section}.{field.name}"
    for section in SECTIONS
    for field in dataclasses.fields(getattr(Recipe.load("tiny"), section))
]


def value(recipe: Recipe, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(recipe, section), name)


@pytest.mark.parametrize("name", recipe_names())
def test_a_shipped_recipe(name: str, tmp_path: Path) -> None:
    recipe = Recipe.load(name)
    assert recipe.name == name
    text = recipe_text(name)
    assert text.startswith("# ")  # the list of recipes shows that line
    # Every key is printed with its value and what it does; one without a value as a comment.
    for key in KEYS:
        _, field = key.split(".")
        mark = "# " if value(recipe, key) is None else ""
        assert re.search(rf"(  # .+\n|\n){mark}{field} = .+(  # .+)?\n", text), key
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json())), what="x") == recipe
    own = tmp_path / "mine.toml"
    own.write_text(text)
    assert Recipe.load(own) == dataclasses.replace(recipe, name="mine")
    config = recipe.model.config(1000)
    again = type(recipe.model).from_config(config)
    if recipe.model.tokens == "characters":
        assert again == dataclasses.replace(recipe.model, tied_softmax=False)
    else:
        assert again.config(1000) == config


def test_original_has_the_numbers_of_bilm_tf() -> None:
    recipe = Recipe.load("original")
    model = recipe.model
    assert (model.dim, model.projection_dim, model.n_layers) == (4096, 512, 2)
    assert (model.cell_clip, model.proj_clip, model.skip_connections) == (3, 3, True)
    assert (model.char_dim, model.max_chars, model.n_highway) == (16, 50, 2)
    assert (model.activation, model.bidirectional, model.tied_softmax) == ("relu", True, False)
    assert model.filters == (
        (1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024),
    )  # fmt: skip
    assert (recipe.data.regime, recipe.data.batch_rows, recipe.data.unroll) == ("stream", 128, 20)
    loss = recipe.loss
    assert (loss.kind, loss.negatives, loss.shared) == ("sampled", 8192, "none")
    assert (loss.times_unroll, loss.unigram_bias, loss.dropout) == (True, False, 0.1)
    optimizer = recipe.optimizer
    assert (optimizer.name, optimizer.lr, optimizer.accumulator) == ("adagrad", 0.2, 1.0)
    assert (optimizer.clip_norm, optimizer.weight_decay, optimizer.accumulate) == (10, 0, 1)
    schedule = recipe.schedule
    assert (schedule.epochs, schedule.tokens, schedule.warmup_tokens) == (10, None, 0)
    assert (schedule.decay, schedule.frozen_tokens) == ("constant", 0)


# --set ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["model.cell_clip", "model.proj_clip", "optimizer.clip_norm"])
def test_a_key_that_may_be_none(key: str, tmp_path: Path) -> None:
    assert value(Recipe.load("tiny", {key: "null"}), key) is None
    section, name = key.split(".")
    (tmp_path / "own.toml").write_text(f'[{section}]\n{name} = "null"\n')
    assert value(Recipe.load(tmp_path / "own.toml"), key) is None


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("optimizer.beta3", "1", "did you mean 'beta2'|did you mean 'beta1'"),
        ("optimiser.lr", "1", "unknown key 'optimiser'; did you mean 'optimizer'"),
        ("lr", "1", "name the section too"),
        ("model.dim", "many", "model.dim='many'; use a whole number"),
        ("model.skip_connections", "1", "skip_connections=1; use true or false"),
        ("model.filters", "[[1, 2, 3]]", "filters"),
        ("data.regime", "sentence", "data.regime='sentence' is unknown; use one of 'sentences'"),
        ("loss.dropout", "1.0", "loss.dropout=1.0; use a number < 1"),
        ("optimizer.lr", "nan", "optimizer.lr=nan"),
        ("optimizer.clip_norm", "0", "optimizer.clip_norm=0; "),
        ("schedule.decay_share", "1.5", "schedule.decay_share=1.5; use a number <= 1"),
        ("schedule.tokens", "0", "schedule.tokens=0; use a .*number >= 1"),
        ("name.x", "1", "unknown key 'name'|name"),
    ],
)
def test_settings_that_cannot_be(key: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Recipe.load("tiny", {key: text})
    assert "\n" not in str(caught.value)


# Own files ------------------------------------------------------------------------------------


def test_files_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    with pytest.raises(ConfigError, match="cannot be read"):
        Recipe.load(path)
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(ConfigError, match="not UTF-8"):
        Recipe.load(path)
    path.write_text("[model")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        Recipe.load(path)
    text = recipe_text("tiny")
    path.write_text(text.replace("[run]", "[runs]"))
    with pytest.raises(ConfigError, match="unknown key 'runs'; did you mean 'run'"):
        Recipe.load(path)
    path.write_text("model = 3\n")
    with pytest.raises(ConfigError, match="model"):
        Recipe.load(path, {"model.dim": "3"})


# Fitted to the data -----------------------------------------------------------------------------


# Everything small, but for what is fitted.
TINY = {
    key: str(value)
    for key, value in SMALL.items()
    if key not in ("schedule.tokens", "schedule.warmup_tokens", "run.evaluate_tokens")
}


def sized(data: Prepared, tokens: int) -> Prepared:
    return dataclasses.replace(data, training=Part(tokens=tokens, sentences=tokens // 20))


@pytest.mark.parametrize("tokens", [2_000, 51_000, 800_000, 5_000_000])
def test_small_data_get_more_passes_a_short_warm_up_and_evaluations(
    data: Prepared, tokens: int
) -> None:
    own, prepared = Recipe.load("laptop"), sized(data, tokens)
    fitted = fitted_recipe(prepared)
    total = fitted.total_tokens(prepared)
    assert own.schedule.epochs < fitted.schedule.epochs <= 6
    assert fitted.schedule.warmup_tokens <= total / 10
    assert total / fitted.run.evaluate_tokens >= 20
    # Nothing else.
    back = dataclasses.replace(fitted, schedule=own.schedule, run=own.run)
    assert back == own


def test_large_data_keep_the_recipe(data: Prepared) -> None:
    assert fitted_recipe(sized(data, 100_000_000)) == Recipe.load("laptop")


def test_keys_that_were_given_stay(data: Prepared) -> None:
    prepared = sized(data, 51_000)
    settings = {
        "schedule.epochs": "3",
        "schedule.warmup_tokens": "123456",
        "run.evaluate_tokens": "7",
    }
    fitted = fitted_recipe(prepared, settings=settings)
    assert fitted == Recipe.load("laptop", settings)
    fitted = fitted_recipe(prepared, settings={"schedule.tokens": "5000"})
    assert (fitted.schedule.epochs, fitted.schedule.tokens) == (2.0, 5000)
    assert (fitted.schedule.warmup_tokens, fitted.run.evaluate_tokens) == (500, 250)


def test_a_resumed_run_keeps_its_own_recipe(data: Prepared, tmp_path: Path) -> None:
    """Also where what it was fitted to is no longer what would be chosen today."""
    started = Recipe.load("laptop", {**TINY, "schedule.epochs": "4"})
    pretrain(data, tmp_path / "run", recipe=started, threads=1)
    before = digest(tmp_path / "run")
    pretrain(data, tmp_path / "run", resume=True, threads=1)
    assert digest(tmp_path / "run") == before
    assert Run(tmp_path / "run").recipe == started

"""Recipes: shipped ones, own ones, and every way to get a key wrong."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from elmore.errors import ConfigError
from elmore.training.bilm.recipe import Recipe, recipe_names, recipe_text

NAMES = ("fine-tune", "laptop", "official-medium", "official-small", "original", "tiny", "words")
SECTIONS = [f.name for f in dataclasses.fields(Recipe) if f.name != "name"]
KEYS = [
    f"{section}.{field.name}"
    for section in SECTIONS
    for field in dataclasses.fields(getattr(Recipe.load("tiny"), section))
]


def value(recipe: Recipe, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(recipe, section), name)


def test_the_shipped_recipes() -> None:
    assert tuple(recipe_names()) == NAMES


@pytest.mark.parametrize("name", NAMES)
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
        assert again == dataclasses.replace(recipe.model, tied_softmax=False, vectors=None)
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


def test_laptop_has_what_the_search_found() -> None:
    """docs/measurements.md has the runs that chose these numbers."""
    recipe = Recipe.load("laptop")
    optimizer = recipe.optimizer
    assert (optimizer.name, optimizer.lr, optimizer.muon_lr) == ("muon", 0.008, 0.02)
    assert (recipe.data.batch_tokens, recipe.loss.negatives) == (1024, 1024)
    assert (recipe.schedule.warmup_tokens, recipe.schedule.decay_share) == (100_000, 0.2)
    assert recipe.data.long_share == 0.25


# --set ----------------------------------------------------------------------------------------


def another(now: Any, key: str) -> tuple[str, Any]:
    """A text for --set that gives another allowed value, and that value."""
    special: dict[str, tuple[str, Any]] = {
        "model.tokens": ("words", "words"),
        "model.filters": ("[[1, 8], [2, 16]]", ((1, 8), (2, 16))),
        "model.activation": ("tanh", "tanh"),
        "model.alphabet": ("characters", "characters"),
        "model.vectors": ("glove.txt", "glove.txt"),
        "data.regime": ("stream", "stream"),
        "loss.kind": ("full", "full"),
        "loss.shared": ("none", "none"),
        "loss.cutoffs": ("[4, 9]", (4, 9)),
        "loss.dropout": ("0.25", 0.25),
        "optimizer.name": ("adagrad", "adagrad"),
        "schedule.decay": ("cosine", "cosine"),
    }
    if key in special:
        return special[key]
    if isinstance(now, bool):
        return str(not now).lower(), not now
    if isinstance(now, int):
        return str(now + 3), now + 3
    return ("0.625", 0.625)


@pytest.mark.parametrize("key", KEYS)
def test_every_key_can_be_set(key: str) -> None:
    before = Recipe.load("tiny")
    text, expected = another(value(before, key), key)
    after = Recipe.load("tiny", {key: text})
    found = value(after, key)
    assert found == expected != value(before, key)
    assert type(found) is type(expected)
    changed = [k for k in KEYS if value(before, k) != value(after, k)]
    assert changed == [key]


@pytest.mark.parametrize("key", ["model.cell_clip", "model.proj_clip", "optimizer.clip_norm"])
def test_a_key_that_may_be_none(key: str, tmp_path: Path) -> None:
    assert value(Recipe.load("tiny", {key: "null"}), key) is None
    section, name = key.split(".")
    (tmp_path / "own.toml").write_text(f'[{section}]\n{name} = "null"\n')
    assert value(Recipe.load(tmp_path / "own.toml"), key) is None


def test_a_file_states_what_differs(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[model]\ndim = 64\n")
    laptop = Recipe.load("laptop")
    model = dataclasses.replace(laptop.model, dim=64)
    assert Recipe.load(tmp_path / "own.toml") == dataclasses.replace(
        laptop, name="own", model=model
    )


def test_an_integer_serves_where_a_number_is_wanted() -> None:
    found = Recipe.load("tiny", {"optimizer.lr": "1"}).optimizer.lr
    assert (found, type(found)) == (1.0, float)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("optimizer.leaning_rate", "1", "unknown key 'leaning_rate'"),
        ("optimizer.beta3", "1", "did you mean 'beta2'|did you mean 'beta1'"),
        ("optimiser.lr", "1", "unknown key 'optimiser'; did you mean 'optimizer'"),
        ("lr", "1", "name the section too"),
        ("model.dim", "1.5", r"model.dim=1.5; use a whole number"),
        ("model.dim", "many", "model.dim='many'; use a whole number"),
        ("model.dim", "true", "model.dim=True; use a whole number"),
        ("model.dim", "none", "model.dim"),
        ("model.skip_connections", "1", "skip_connections=1; use true or false"),
        ("model.filters", "[[1, 2, 3]]", "filters"),
        (
            "data.regime",
            "sentence",
            "data.regime='sentence' is unknown; use one of 'sentences', 'stream'",
        ),
        ("loss.dropout", "1.0", "loss.dropout=1.0; use a number < 1"),
        ("loss.negatives", "0", "loss.negatives=0; use a .*number >= 1"),
        ("data.unroll", "-1", "data.unroll=-1; use a .*number >= 1"),
        ("optimizer.lr", "0", "optimizer.lr=0; use a number > 0"),
        ("optimizer.lr", "nan", "optimizer.lr=nan"),
        ("optimizer.lr", "inf", "optimizer.lr=inf"),
        ("optimizer.clip_norm", "-1", "optimizer.clip_norm=-1; use a number > 0"),
        ("optimizer.clip_norm", "0", "optimizer.clip_norm=0; "),
        ("optimizer.accumulator", "0", "optimizer.accumulator=0; use a number > 0"),
        ("optimizer.beta2", "1.0", "optimizer.beta2=1.0; use a number < 1"),
        (
            "optimizer.name",
            "muom",
            "optimizer.name='muom' is unknown; use one of 'adagrad', 'adam', 'muon'",
        ),
        ("optimizer.muon_lr", "0", "optimizer.muon_lr=0; use a number > 0"),
        ("optimizer.muon_momentum", "1", "optimizer.muon_momentum=1; use a number < 1"),
        ("schedule.decay_share", "1.5", "schedule.decay_share=1.5; use a number <= 1"),
        ("schedule.floor", "-0.1", "schedule.floor=-0.1; use a number >= 0"),
        ("schedule.tokens", "0", "schedule.tokens=0; use a .*number >= 1"),
        ("schedule.epochs", "0", "schedule.epochs=0; use a number > 0"),
        ("schedule.warmup_tokens", "-1", "schedule.warmup_tokens=-1; use a .*number >= 0"),
        ("run.evaluate_tokens", "-5", "run.evaluate_tokens=-5; use a .*number >= 0"),
        ("run.save_minutes", "-1", "run.save_minutes=-1; use a .*number >= 0"),
        ("name.x", "1", "unknown key 'name'|name"),
    ],
)
def test_settings_that_cannot_be(key: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Recipe.load("tiny", {key: text})
    assert "\n" not in str(caught.value)


# Own files ------------------------------------------------------------------------------------


def test_an_unknown_name_is_guessed() -> None:
    with pytest.raises(ConfigError, match="did you mean 'laptop'"):
        Recipe.load("labtop")


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


def test_characters_cannot_be_tied() -> None:
    recipe = Recipe.load("tiny", {"model.tied_softmax": "true"})
    with pytest.raises(ConfigError, match=r"model\.tokens='words'"):
        recipe.model.config(10)

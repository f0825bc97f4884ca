"""What a recipe of a task may say."""

from __future__ import annotations

import json

import pytest
from small_tasks import NAMES, quick_recipe, task_class

from elmore.errors import ConfigError
from elmore.tasks.recipe import TaskRecipe
from elmore.training.bilm.recipe import TASK_RECIPES, recipe_names


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("ner", "model.lstm", "[-3]", "model.lstm[0]=-3; use a whole number >= 1"),
        ("ner", "model.lstm", str([1] * 65), "use a list of length <= 64"),
        ("srl", "model.n_layers", "65", "model.n_layers=65; use a whole number <= 64"),
        ("coref", "model.spans_per_token", "nan", "model.spans_per_token=nan; use a number > 0"),
        ("sentiment", "model.dropout", "1.0", "model.dropout=1.0; use a number < 1"),
    ],
)
def test_values_out_of_bounds_are_refused(name: str, key: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        quick_recipe(name, **{key: value})
    assert str(caught.value).startswith("laptop: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_shipped_recipes_come_back_from_json(name: str) -> None:
    sizes = ("laptop",) if name in ("tag", "classify") else ("laptop", "paper")
    for whole in (f"{name}-{size}" for size in sizes):
        assert whole in recipe_names(TASK_RECIPES)
        recipe = TaskRecipe.load(whole, name, task_class(name).sizes)
        data = json.loads(json.dumps(recipe.to_json()))
        assert TaskRecipe.from_json(data, task_class(name).sizes, what=whole) == recipe

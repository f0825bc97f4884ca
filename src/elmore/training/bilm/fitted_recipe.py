"""The recipe of a run that names none: `laptop`, fitted to the size of the data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping

from elmore.corpus.prepared import Prepared
from elmore.training.bilm.recipe import Recipe
from elmore.training.run import Run

__all__ = ["DEFAULT", "choose_recipe", "epoch_tokens", "fit_recipe", "fitted_keys", "run_tokens"]

DEFAULT = "laptop"
# From this many tokens on, the recipe's own passes are enough. With less, the square root: half
# the text is read 1.4 times as often.
_ENOUGH_TOKENS = 10_000_000
# More passes over a small text are learned by heart.
_MAX_EPOCHS = 6
# Evaluations of a run, so that its best model is found and its curve can be seen.
_MIN_EVALUATIONS = 20
# The warm-up takes at most this share of the run.
_WARMUP_SHARE = 0.1


def epoch_tokens(prepared: Prepared, recipe: Recipe) -> int:
    """Predictions of one pass: every word, and the end of every sentence."""
    if recipe.data.regime == "stream":
        return prepared.n_tokens
    return prepared.n_tokens + prepared.n_sentences


def run_tokens(prepared: Prepared, recipe: Recipe) -> int:
    """Tokens of a complete run."""
    schedule = recipe.schedule
    if schedule.tokens is not None:
        return schedule.tokens
    return math.ceil(schedule.epochs * epoch_tokens(prepared, recipe))


def choose_recipe(
    prepared: Prepared, run: Run | None = None, settings: Mapping[str, str] | None = None
) -> Recipe:
    """The recipe where none is named; a `run` to resume keeps its own.

    `settings` are changed as in `Recipe.load`, and not fitted.
    """
    if run is not None and run.exists():
        return run.recipe.changed(settings or {})
    return fit_recipe(Recipe.load(DEFAULT, settings), prepared, keep=settings or ())


def fit_recipe(recipe: Recipe, prepared: Prepared, *, keep: Collection[str] = ()) -> Recipe:
    """Fit passes, warm-up and evaluations to small data; large data leave a recipe as it is.

    `keep` are keys that stay as they are, such as "schedule.epochs".
    """
    per_epoch = max(1, epoch_tokens(prepared, recipe))
    schedule, around = recipe.schedule, recipe.run
    if "schedule.epochs" not in keep and schedule.tokens is None:
        factor = math.sqrt(max(1.0, _ENOUGH_TOKENS / per_epoch))
        epochs = max(schedule.epochs, min(_MAX_EPOCHS, round(schedule.epochs * factor)))
        schedule = dataclasses.replace(schedule, epochs=float(epochs))
    total = run_tokens(prepared, dataclasses.replace(recipe, schedule=schedule))
    if "schedule.warmup_tokens" not in keep:
        warmup = min(schedule.warmup_tokens, int(total * _WARMUP_SHARE))
        schedule = dataclasses.replace(schedule, warmup_tokens=warmup)
    if "run.evaluate_tokens" not in keep and around.evaluate_tokens:
        every = min(around.evaluate_tokens, max(1, total // _MIN_EVALUATIONS))
        around = dataclasses.replace(around, evaluate_tokens=every)
    return dataclasses.replace(recipe, schedule=schedule, run=around)


def fitted_keys(recipe: Recipe) -> dict[str, float]:
    """What `fit_recipe` decides, as "section.key" to value."""
    return {
        "schedule.epochs": recipe.schedule.epochs,
        "schedule.warmup_tokens": recipe.schedule.warmup_tokens,
        "run.evaluate_tokens": recipe.run.evaluate_tokens,
    }

"""What the training of a task reports: scores, curve, settings, and what a reader should know."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elmore.errors import ConfigError
from elmore.report import Report, Row, Value
from elmore.tasks.parts import Measured, TaskParts
from elmore.tasks.recipe import TaskRecipe

__all__ = ["Training", "changed_settings", "fit_report"]


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a training went.

    Attributes:
        examples: what was learned from.
        left_out: how many more the files had.
        n_held_out: development examples.
        steps: steps that were done.
        seen: examples of all steps.
        scores: the score of each evaluation.
        evaluate_epochs: epochs between evaluations.
    """

    examples: Sequence[Any]
    left_out: int
    n_held_out: int
    steps: int
    seen: int
    scores: Sequence[float]
    evaluate_epochs: int


def fit_report(
    task: TaskParts[Any, Any],
    training: Training,
    measured: Measured,
    mixes: Sequence[Row],
    about: Mapping[str, Value | Sequence[Value]],
) -> Report:
    """Report a training.

    Args:
        task: what was trained.
        training: how it went.
        measured: scores of the weights that were kept.
        mixes: the learned mixes of layers.
        about: recipe, models and seed.
    """
    scores = training.scores
    # The last evaluation may come earlier: at the end.
    most = task.recipe.schedule.epochs
    epochs = [min(most, k * training.evaluate_epochs) for k in range(1, len(scores) + 1)]
    tables: dict[str, Sequence[Row]] = {}
    if scores:
        tables[f"{task.metric} by epoch"] = [
            {"epoch": epoch, task.metric: score}
            for epoch, score in zip(epochs, scores, strict=True)
        ]
    if mixes:
        tables["mix"] = mixes
    n_examples = len(training.examples)
    return Report(
        name=task.name,
        metrics=dict(measured.metrics),
        measured_on={
            "training examples": n_examples,
            "development examples": training.n_held_out,
            "steps": training.steps,
            "epochs": epochs[-1] if scores else math.ceil(training.seen / n_examples),
            "best epoch": epochs[scores.index(max(scores))] if scores else None,
            "score": "of the best epoch on development data" if scores else None,
            **about,
        },
        tables=tables,
        notes=_remarks(task, training),
    )


def _remarks(task: TaskParts[Any, Any], training: Training) -> list[str]:
    """Say what a reader of the scores should know."""
    doubts = task.doubts(training.examples)
    notes = [*doubts]
    if training.left_out:
        notes.append(f"{training.left_out} training examples are left out: {task.left_out}")
    if not training.scores:
        notes.append("no development data: the last weights are kept, nothing is scored")
    elif max(training.scores) <= 0 and not doubts:
        notes.append(
            "the score never rose above 0; with little data take a smaller data.batch_size, "
            "more schedule.epochs, or a larger optimizer.lr"
        )
    return notes


def changed_settings(task: TaskParts[Any, Any]) -> list[str] | None:
    """The keys in which a task's recipe differs from the shipped one of its name."""
    try:
        shipped = TaskRecipe.load(task.recipe.name, task.name, task.sizes).to_json()
    except ConfigError:
        return None
    return [
        f"{section}.{key}={json.dumps(value)}"
        for section, values in task.recipe.to_json().items()
        if isinstance(values, dict)
        for key, value in values.items()
        if value != shipped[section][key]
    ] or None

"""What the training of a task reports: scores, curve, settings, and what a reader should know."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from elmore.errors import ConfigError
from elmore.report import Report, Row
from elmore.tasks.parts import Measured, TaskParts
from elmore.tasks.recipe import TaskRecipe

if TYPE_CHECKING:
    from elmore.tasks.supervised import Task
    from elmore.training.task_trainer import TaskTrainer

__all__ = ["changed_settings", "fit_report"]


def fit_report(
    task: Task[Any, Any],
    trainer: TaskTrainer[Any],
    measured: Measured,
    *,
    examples: Sequence[Any],
    left_out: int,
    n_held_out: int,
    evaluate_epochs: int,
) -> Report:
    """Report a training.

    Args:
        task: what was trained.
        trainer: how far it came, and the score of each evaluation.
        measured: scores of the weights that were kept.
        examples: what was learned from.
        left_out: how many more the files had.
        n_held_out: development examples.
        evaluate_epochs: epochs between evaluations.
    """
    scores, n_examples = trainer.scores, len(examples)
    # The last evaluation may come earlier: at the end.
    most = task.recipe.schedule.epochs
    epochs = [min(most, k * evaluate_epochs) for k in range(1, len(scores) + 1)]
    tables: dict[str, Sequence[Row]] = {}
    if scores:
        tables[f"{task.metric} by epoch"] = [
            {"epoch": epoch, task.metric: score}
            for epoch, score in zip(epochs, scores, strict=True)
        ]
    if mixes := task.mix_table():
        tables["mix"] = mixes
    doubts = task.doubts(examples)
    notes = [*doubts]
    if left_out:
        notes.append(f"{left_out} training examples are left out: {task.left_out}")
    if not scores:
        notes.append("no development data: the last weights are kept, nothing is scored")
    elif max(scores) <= 0 and not doubts:
        notes.append(
            "the score never rose above 0; with little data take a smaller data.batch_size, "
            "more schedule.epochs, or a larger optimizer.lr"
        )
    return Report(
        name=task.name,
        metrics=dict(measured.metrics),
        measured_on={
            "training examples": n_examples,
            "development examples": n_held_out,
            "steps": trainer.step_number,
            "epochs": epochs[-1] if scores else math.ceil(trainer.seen / n_examples),
            "best epoch": epochs[scores.index(max(scores))] if scores else None,
            "score": "of the best epoch on development data" if scores else None,
            **task.about(),
            "vectors": None if task.vectors is None else str(task.vectors),
            "seed": task.seed,
        },
        tables=tables,
        notes=notes,
    )


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

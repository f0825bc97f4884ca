"""Reports of trainings: one training, and the same training with several seeds."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from elmore.errors import ConfigError
from elmore.report import Report, Row
from elmore.tasks.recipe import TaskRecipe
from elmore.tasks.scores import Measured

if TYPE_CHECKING:
    from elmore.tasks.fitting import Split
    from elmore.tasks.task import Task
    from elmore.training.task_trainer import TaskTrainer

__all__ = ["changed_settings", "fit_report", "over_seeds", "sum_up"]


def fit_report(
    task: Task[Any, Any],
    trainer: TaskTrainer[Any],
    measured: Measured,
    split: Split[Any],
    evaluate_epochs: int,
) -> Report:
    """Report a training.

    Args:
        task: what was trained.
        trainer: how far it came, and the score of each evaluation.
        measured: scores of the weights that were kept.
        split: what was learned from, and what was evaluated on.
        evaluate_epochs: epochs between evaluations.
    """
    scores, n_examples = trainer.scores, len(split.train)
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
    return Report(
        name=task.name,
        metrics=dict(measured.metrics),
        measured_on={
            "training examples": n_examples,
            "development examples": len(split.dev),
            "steps": trainer.step_number,
            "epochs": epochs[-1] if scores else math.ceil(trainer.seen / n_examples),
            "best epoch": epochs[scores.index(max(scores))] if scores else None,
            "score": "of the best epoch on development data" if scores else None,
            **task.about(),
            "vectors": None if task.vectors is None else str(task.vectors),
            "seed": task.seed,
        },
        tables=tables,
        notes=_fit_notes(task, scores, split),
    )


def _fit_notes(task: Task[Any, Any], scores: Sequence[float], split: Split[Any]) -> list[str]:
    doubts = task.doubts(split.train)
    notes = [*doubts]
    if split.left_out:
        notes.append(f"{split.left_out} training examples are left out: {task.left_out}")
    if split.how:
        notes.append(
            f"no development data: {len(split.dev)} of {len(split.train) + len(split.dev)} "
            f"examples were held out to evaluate on ({split.how}, seed {task.seed})"
        )
    if not scores:
        notes.append("no development data: the last weights are kept, nothing is scored")
    elif max(scores) <= 0 and not doubts:
        notes.append(
            "the score never rose above 0; with little data take a smaller data.batch_size, "
            "more schedule.epochs, or a larger optimizer.lr"
        )
    elif len(scores) > 1:
        notes.append(
            "the same development data chose the epoch, so the score is a little too high; score "
            "test data for a fair comparison"
        )
    return notes


def changed_settings(task: Task[Any, Any]) -> list[str] | None:
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


# --------------------------------------------------------------------- several seeds


def over_seeds(seeds: Iterable[int], run: Callable[[int], Report]) -> Report:
    """Run a training once for each seed and sum the scores up.

    Args:
        seeds: the seeds.
        run: trains with a seed and reports.

    Returns:
        a report whose metrics are means; `NAME sd` beside each is the standard deviation of a
        sample (n - 1), and the table has every seed.
    """
    reports = [(seed, run(seed)) for seed in seeds]
    if not reports:
        raise ConfigError("no seed to train with; use one or more")
    return sum_up(reports)


def sum_up(reports: Sequence[tuple[int, Report]]) -> Report:
    """Sum up reports of single seeds."""
    first = reports[0][1]
    metrics: dict[str, float] = {}
    for name in first.metrics:
        values = [report.metrics[name] for _, report in reports]
        metrics[name] = statistics.fmean(values)
        metrics[f"{name} sd"] = statistics.stdev(values) if len(values) > 1 else 0.0
    rows: list[Row] = [{"seed": seed, **report.metrics} for seed, report in reports]
    rows.append({"seed": "mean", **{name: metrics[name] for name in first.metrics}})
    rows.append({"seed": "sd", **{name: metrics[f"{name} sd"] for name in first.metrics}})
    own = ("seed", "steps", "epochs", "best epoch")  # of a single training
    measured = {k: v for k, v in first.measured_on.items() if k not in own}
    return Report(
        name=first.name,
        metrics=metrics,
        measured_on={**measured, "seeds": [seed for seed, _ in reports]},
        tables={"seeds": rows, **_curves(reports)},
        notes=_notes(reports),
    )


def _curves(reports: Sequence[tuple[int, Report]]) -> dict[str, list[Row]]:
    """The mean of the learning curves, if there are any."""
    rows: dict[Any, list[Any]] = {}
    for _, report in reports:
        for row in report.tables.get("learning curve", ()):
            rows.setdefault(row["examples"], []).append(row)
    means: list[Row] = [
        {name: statistics.fmean(row[name] for row in same) for name in same[0]} | {"examples": n}
        for n, same in sorted(rows.items())
    ]
    return {"learning curve": means} if means else {}


def _notes(reports: Sequence[tuple[int, Report]]) -> list[str]:
    """Notes that all seeds share once, the others with their seed."""
    every = dict.fromkeys(note for _, report in reports for note in report.notes)
    found = []
    for note in every:
        seeds = [str(seed) for seed, report in reports if note in report.notes]
        found.append(note if len(seeds) == len(reports) else f"seed {', '.join(seeds)}: {note}")
    return found

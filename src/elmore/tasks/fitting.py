"""The training of a task, step by step: divide, prepare, start or resume, train, keep the best."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import math
import shutil
import statistics
import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torch import Tensor

from elmore.base.io import sha256_file
from elmore.base.json import read_json
from elmore.base.optional import require
from elmore.errors import ConfigError, ResumeError
from elmore.report import Report, Row
from elmore.tasks.layers.features import LiveLayers
from elmore.tasks.predictions import Example
from elmore.training.display import TrainingProgress, reporting
from elmore.training.loop import Cadence, Stopped
from elmore.training.loop import train as run_loop
from elmore.training.run import Run
from elmore.training.seeds import numpy_generator
from elmore.training.task_trainer import LengthBatches, TaskTrainer

if TYPE_CHECKING:
    from elmore.tasks.task import Task

Item = TypeVar("Item")
_REPORT = "report.json"


@dataclass(frozen=True)
class Split(Generic[Example]):
    """The data of a training."""

    train: list[Example]  # to learn from
    dev: list[Example]  # to evaluate on; none for no evaluation
    left_out: int = 0  # how many more there were to learn from
    how: str = ""  # in words, how `dev` was held out of the training data; empty if it was given


def split_held_out(
    items: Sequence[Item], key: Callable[[Item], Hashable], *, seed: int
) -> tuple[list[Item], list[Item]]:
    """Hold out every tenth item, with each key in the same proportion, the same for a seed.

    Of fewer than 100 items up to 10 are held out, of fewer than 10 none, and never more than 2,000.
    A key that occurs once stays in the training part.
    """
    n = len(items)
    wanted = 0 if n < 10 else min(max(n // 10, min(10, n // 5)), 2000)
    order = numpy_generator(seed, "held out").permutation(n).tolist()
    groups: dict[Hashable, list[int]] = {}
    for k in order:
        groups.setdefault(key(items[k]), []).append(k)
    # Sorted by how far along its own group an item is: any prefix has all groups in proportion.
    ranks = [
        ((rank + 0.5) / len(group), k)
        for group in groups.values()
        for rank, k in enumerate(group[:-1] if len(group) > 1 else [])
    ]
    chosen = {k for _, k in sorted(ranks)[:wanted]}
    return (
        [item for k, item in enumerate(items) if k not in chosen],
        [items[k] for k in sorted(chosen)],
    )


def fit_task(
    task: Task[Example, Any],
    split: Split[Example],
    *,
    out: str | Path | None = None,
    resume: bool = False,
    progress: TrainingProgress = None,
    evaluate_epochs: int | None = None,
) -> Report:
    """Train a task on examples that are divided already; arguments as in `Task.fit`."""
    for module in task.needs:  # so that a run does not end for want of it
        require(module, "tasks", f"training {task.name}")
    often = evaluate_epochs
    if often is None:
        often = task.evaluate_epochs(len(split.train))
    if often < 1:
        raise ConfigError(f"evaluate_epochs={often}; use 1 or more")
    with contextlib.ExitStack() as stack:
        if out is None:
            out = stack.enter_context(tempfile.TemporaryDirectory(prefix="elmore-task-"))
        run = Run(out)
        run.check_new(resume=resume)
        task.prepare(split.train)
        examples = [*split.train, *split.dev]
        task.check_labels(examples)
        facts = _facts(task, split)
        if (report := _finished(task, run, facts)) is not None:
            return report
        frozen = not task.recipe.elmo.trainable
        stack.enter_context(task.layers(examples if frozen else [], silent=progress is False))
        stack.enter_context(run.locked())
        trainer = _trainer(task, split, run)
        if run.exists():
            run.check(task.recipe, facts)
            run.forget_after(trainer.step_number if trainer.load_state() else -1)
        else:
            run.start(task.recipe, facts)
        patience = task.recipe.schedule.patience
        if not (trainer.finished() or (patience and trainer.evaluations_since_best >= patience)):
            try:
                _train(task, trainer, resume, progress, often)
            except Stopped:
                # The best model so far stays behind, for use.
                if trainer.scores or not split.dev:
                    task.scores = {task.metric: trainer.best} if trainer.scores else {}
                    trainer.finish()
                    task.take_trained_bilm()
                    task.save(run.checkpoint_path, overwrite=True)
                raise
        trainer.finish()
        task.take_trained_bilm()
        none = Report(name=task.name, metrics={})
        measured = task.measured(split.dev) if split.dev else none
        task.scores = measured.metrics
        task.save(run.checkpoint_path, overwrite=True)
        report = task.explain(_report(task, trainer, measured, split, often), measured, split)
        report.save(run.path / _REPORT, overwrite=True)
        # With the report, the run is complete: nothing resumes from its states any more.
        shutil.rmtree(run.resume_path, ignore_errors=True)
    return report


def _facts(task: Task[Example, Any], split: Split[Example]) -> dict[str, Any]:
    """What must be the same when a run is resumed."""
    return {
        "task": task.name,
        "seed": task.seed,
        "data": _digest(split.train),
        # Scores on other data cannot be compared, and without any the best would stay.
        "dev": _digest(split.dev) if split.dev else None,
        "elmo": None if task.elmo is None else task.elmo.digest,
        "vectors": None if task.vectors is None else sha256_file(task.vectors),
    }


def _digest(examples: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _finished(task: Task[Example, Any], run: Run, facts: dict[str, Any]) -> Report | None:
    """The report of a run that is complete, whose model the task becomes; else None."""
    if not run.exists() or run.resume_path.exists() or not (run.path / _REPORT).is_file():
        return None
    run.check(task.recipe, facts, write=False)
    changed = [key for key in run.changed(task.recipe) if not key.startswith("run.")]
    if changed:
        raise ResumeError(
            f"'{run.path}' holds a finished run, which cannot continue with another {changed[0]}; "
            "train in another folder"
        )
    task.restore(run.checkpoint_path)
    return Report(**read_json(run.path / _REPORT))


def _trainer(task: Task[Example, Any], split: Split[Example], run: Run) -> TaskTrainer[Example]:
    recipe, network = task.recipe, task.network
    layers, mixes = task.index.layers, network.features.elmo
    if recipe.elmo.trainable and layers is not None and mixes is not None:
        mixes.bilm = copy.deepcopy(layers.cache.elmo.engine.bilm).to(task.device)
        for weight in mixes.bilm.parameters():
            weight.requires_grad_(True)
        task.index.layers = LiveLayers(layers.cache, mixes.bilm)

    def loss(batch: list[Example]) -> Tensor:
        return task.loss(batch) + network.features.penalty(recipe.elmo.penalty)

    def measure() -> dict[str, float]:
        return dict(task.measured(split.dev).metrics)

    lengths = [task.length(example) for example in split.train]
    return TaskTrainer(
        network,
        loss,
        LengthBatches(split.train, lengths, size=recipe.data.batch_size, seed=task.seed),
        measure=measure if split.dev else None,
        score=lambda found: found[task.metric],
        learning=recipe.optimizer,
        pace=recipe.schedule,
        run=run,
        seed=task.seed,
    )


def _train(
    task: Task[Example, Any],
    trainer: TaskTrainer[Example],
    resume: bool,
    progress: TrainingProgress,
    evaluate_epochs: int,
) -> None:
    recipe, run, n_examples = task.recipe, trainer.run, len(trainer.batches.examples)
    cadence = Cadence(
        recipe.run.log_steps,
        recipe.run.save_minutes,
        evaluate_epochs * n_examples,
        recipe.schedule.patience,
    )
    with reporting(progress, run.path, metric=task.metric, resume=resume) as read:
        run_loop(
            trainer,
            run,
            cadence,
            unit="examples",
            score=lambda found: found[task.metric],
            report=lambda line: read({**line, "epoch": round(line["examples"] / n_examples)}),
        )


# --------------------------------------------------------------------- reports


def _report(
    task: Task[Any, Any],
    trainer: TaskTrainer[Any],
    measured: Report,
    split: Split[Any],
    evaluate_epochs: int,
) -> Report:
    scores, metric = trainer.scores, task.metric
    # The last evaluation may come earlier: at the end.
    most = task.recipe.schedule.epochs
    epochs = [min(most, k * evaluate_epochs) for k in range(1, len(scores) + 1)]
    curve: list[Row] = [
        {"epoch": epoch, metric: score} for epoch, score in zip(epochs, scores, strict=True)
    ]
    tables: dict[str, Sequence[Row]] = {f"{metric} by epoch": curve, "mix": task.mix_table()}
    return Report(
        name=task.name,
        metrics=dict(measured.metrics),
        measured_on={
            "training examples": len(split.train),
            "development examples": len(split.dev),
            "steps": trainer.step_number,
            "epochs": epochs[-1] if scores else math.ceil(trainer.seen / len(split.train)),
            "best epoch": epochs[scores.index(max(scores))] if scores else None,
            "score": "of the best epoch on development data" if scores else None,
            **task.about(),
            "vectors": None if task.vectors is None else str(task.vectors),
            "seed": task.seed,
        },
        tables={name: rows for name, rows in tables.items() if rows},
        notes=_fit_notes(task, scores, split),
    )


def _fit_notes(task: Task[Any, Any], scores: Sequence[float], split: Split[Any]) -> list[str]:
    notes = []
    if split.left_out:
        notes.append(f"{split.left_out} training examples are left out: {task.left_out}")
    if split.how:
        notes.append(
            f"no development data: {len(split.dev)} of {len(split.train) + len(split.dev)} "
            f"examples were held out to evaluate on ({split.how}, seed {task.seed})"
        )
    if not scores:
        notes.append("no development data: the last weights are kept, nothing is scored")
    elif max(scores) <= 0:
        notes.append(
            "the score never rose above 0; check that the labels are in the right column; with "
            "little data take a smaller data.batch_size, more schedule.epochs, or a larger "
            "optimizer.lr"
        )
    elif len(scores) > 1:
        notes.append(
            "the same development data chose the epoch, so the score is a little too high; score "
            "test data for a fair comparison"
        )
    return notes


def over_seeds(reports: Mapping[int, Report]) -> Report:
    """Sum up the reports of the same training with several seeds.

    Metrics are means; `NAME sd` next to each is the standard deviation of a sample (n - 1), and
    the table has every seed.
    """
    first = next(iter(reports.values()))
    columns = {name: [r.metrics[name] for r in reports.values()] for name in first.metrics}
    means = {name: statistics.fmean(values) for name, values in columns.items()}
    sds = {name: statistics.stdev(v) if len(v) > 1 else 0.0 for name, v in columns.items()}
    rows: list[Row] = [{"seed": seed, **report.metrics} for seed, report in reports.items()]
    rows += [{"seed": "mean", **means}, {"seed": "sd", **sds}]
    metrics: dict[str, float] = {}
    for name in means:
        metrics |= {name: means[name], f"{name} sd": sds[name]}
    curves: dict[Any, list[Any]] = {}
    # Notes that all seeds share once, the others with their seed.
    notes: dict[str, list[str]] = {}
    for seed, report in reports.items():
        for row in report.tables.get("learning curve", ()):
            curves.setdefault(row["examples"], []).append(row)
        for note in report.notes:
            notes.setdefault(note, []).append(str(seed))
    curve: list[Row] = [
        {name: statistics.fmean(row[name] for row in same) for name in same[0]} | {"examples": n}
        for n, same in sorted(curves.items())
    ]
    own = ("seed", "steps", "epochs", "best epoch")  # of a single training
    return Report(
        name=first.name,
        metrics=metrics,
        measured_on={
            **{k: v for k, v in first.measured_on.items() if k not in own},
            "seeds": list(reports),
        },
        tables={"seeds": rows, **({"learning curve": curve} if curve else {})},
        notes=[
            note if len(seeds) == len(reports) else f"seed {', '.join(seeds)}: {note}"
            for note, seeds in notes.items()
        ],
    )

"""The training of a task, step by step: divide, prepare, start or resume, train, keep the best."""

from __future__ import annotations

import copy
import hashlib
import shutil
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torch import Tensor

from elmore.base.io import sha256_file
from elmore.base.json import read_json
from elmore.errors import ResumeError
from elmore.report import Report
from elmore.tasks.predictions import Example
from elmore.tasks.reports import fit_report
from elmore.tasks.scores import Measured
from elmore.training.display import TrainingProgress, reporting
from elmore.training.loop import Cadence, Stopped
from elmore.training.loop import train as run_loop
from elmore.training.run import Run
from elmore.training.seeds import numpy_generator
from elmore.training.task_trainer import LengthBatches, TaskTrainer

if TYPE_CHECKING:
    from elmore.tasks.task import Task

__all__ = ["Split", "fit_task", "split_held_out"]

Item = TypeVar("Item")
_REPORT = "report.json"


@dataclass(frozen=True)
class Split(Generic[Example]):
    """The data of a training.

    Attributes:
        train: examples to learn from.
        dev: examples to evaluate on; none for no evaluation.
        left_out: how many more there were to learn from.
        how: in words, how `dev` was held out of the training data; empty if it was given.
    """

    train: list[Example]
    dev: list[Example]
    left_out: int = 0
    how: str = ""


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
    run: Run,
    *,
    resume: bool,
    progress: TrainingProgress,
    evaluate_epochs: int,
) -> Report:
    """Train a task in the folder of a run; arguments as in `Task.fit`."""
    run.check_new(resume=resume)
    task.prepare(split.train)
    task.check_labels([*split.train, *split.dev])
    facts = _facts(task, split)
    if (report := _finished(task, run, facts)) is not None:
        return report
    frozen = not task.recipe.elmo.trainable
    with (
        task.layers([*split.train, *split.dev] if frozen else [], silent=progress is False),
        run.locked(),
    ):
        trainer = _trainer(task, split, run)
        _start(task, run, trainer, facts)
        patience = task.recipe.schedule.patience
        if not (trainer.finished() or (patience and trainer.evaluations_since_best >= patience)):
            try:
                _train(task, split, trainer, resume, progress, evaluate_epochs)
            except Stopped:
                # The best model so far stays behind, for use.
                if trainer.scores or not split.dev:
                    _keep(task, trainer)
                    task.scores = {task.metric: trainer.best} if trainer.scores else {}
                    task.save(run.checkpoint_path, overwrite=True)
                raise
        _keep(task, trainer)
        measured = task.measured(split.dev) if split.dev else Measured({})
        task.scores = measured.metrics
        task.save(run.checkpoint_path, overwrite=True)
        report = task.explain(
            fit_report(task, trainer, measured, split, evaluate_epochs), measured, split
        )
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
    mixes = network.features.elmo
    if recipe.elmo.trainable and task.elmo is not None and mixes is not None:
        mixes.bilm = copy.deepcopy(task.elmo.engine.bilm).to(task.device)
        for weight in mixes.bilm.parameters():
            weight.requires_grad_(True)
        task.index.live = task.elmo

    def loss(batch: list[Example]) -> Tensor:
        return task.loss(batch) + network.features.penalty(recipe.elmo.penalty)

    def measure() -> dict[str, float]:
        return dict(task.measured(split.dev).metrics)

    return TaskTrainer(
        network,
        loss,
        LengthBatches(
            split.train,
            [task.length(example) for example in split.train],
            size=recipe.data.batch_size,
            seed=task.seed,
        ),
        measure=measure if split.dev else None,
        score=lambda found: found[task.metric],
        learning=recipe.optimizer,
        pace=recipe.schedule,
        run=run,
        seed=task.seed,
    )


def _start(
    task: Task[Example, Any], run: Run, trainer: TaskTrainer[Example], facts: dict[str, Any]
) -> None:
    """Begin the run, or take it up where its newest state is."""
    if run.exists():
        run.check(task.recipe, facts)
        run.forget_after(trainer.step_number if trainer.load_state() else -1)
    else:
        run.start(task.recipe, facts)


def _train(
    task: Task[Example, Any],
    split: Split[Example],
    trainer: TaskTrainer[Example],
    resume: bool,
    progress: TrainingProgress,
    evaluate_epochs: int,
) -> None:
    recipe, run = task.recipe, trainer.run
    cadence = Cadence(
        recipe.run.log_steps,
        recipe.run.save_minutes,
        evaluate_epochs * len(split.train),
        recipe.schedule.patience,
    )
    with reporting(progress, None, run.path, metric=task.metric, resume=resume) as read:

        def with_epoch(line: dict[str, Any]) -> None:
            read({**line, "epoch": round(line["examples"] / len(split.train))})

        run_loop(
            trainer,
            run,
            cadence,
            unit="examples",
            score=lambda found: found[task.metric],
            report=with_epoch,
        )


def _keep(task: Task[Example, Any], trainer: TaskTrainer[Example]) -> None:
    """Put the best weights into the network, and a biLM that was trained into the task."""
    trainer.finish()
    task.take_trained_bilm()

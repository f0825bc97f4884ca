"""The training of a task: divide the data, start or resume a run, learn, keep the best, report."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import math
import shutil
import statistics
import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from torch import Tensor

from elmore.base.io import sha256_file
from elmore.base.json import read_json
from elmore.base.optional import require
from elmore.errors import ConfigError, ResumeError, Stopped
from elmore.report import Report, Row
from elmore.tasks.predictions import Example
from elmore.tasks.recipe import FEW
from elmore.tasks.scores import imbalance, label_rows
from elmore.training.display import TrainingProgress, reporting
from elmore.training.loop import StepReport, Trainable, train
from elmore.training.optimizers import (
    Update,
    clip_by_global_norm,
    make_optimizer,
    plateau_factor,
)
from elmore.training.run import Run
from elmore.training.seeds import numpy_generator, seeded

if TYPE_CHECKING:
    from elmore.tasks.task import Task

Item = TypeVar("Item")
_REPORT = "report.json"
# The table of a report that compares the model with its baseline.
BASELINE = "against a baseline"
# How far a batch's lengths may differ: without it the same sentences always meet.
_LENGTH_NOISE = 0.1


@dataclass(frozen=True)
class Split(Generic[Example]):
    """The data of a training."""

    train: list[Example]  # to learn from
    dev: list[Example]  # to evaluate on; none for no evaluation
    notes: Sequence[str] = ()  # for the report: what was left out or held out


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
    checked: Sequence[Example] = (),
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: TrainingProgress = None,
    evaluate_epochs: int | None = None,
) -> Report:
    """Train a task on examples that are divided already; arguments as in `Task.fit`.

    The labels of `checked` must be those of the training, too.
    """
    for module in ("sklearn.metrics", "seqeval.metrics"):  # so that no run ends for want of them
        require(module, "tasks", f"training {task.name}")
    if evaluate_epochs is not None and evaluate_epochs < 1:
        raise ConfigError(f"evaluate_epochs={evaluate_epochs}; use 1 or more")
    with contextlib.ExitStack() as stack:
        if out is None:
            out = stack.enter_context(tempfile.TemporaryDirectory(prefix="elmore-task-"))
        run = Run(out)
        run.check_new(resume=resume, overwrite=overwrite)
        task.prepare(split.train)
        examples = [*split.train, *split.dev]
        task.check_labels([*examples, *checked])
        if overwrite:
            run.clear()
        facts = _facts(task, split)
        if (report := _finished(task, run, facts)) is not None:
            return report
        recipe, n_examples = task.recipe, len(split.train)
        # A choice of an epoch by a tenth of few examples is chance, and often ends too early.
        last_only = task.light and n_examples < FEW
        often = evaluate_epochs or (recipe.schedule.epochs if last_only else 1)
        if recipe.elmo.trainable:
            examples = []
        stack.enter_context(task.layers(examples, silent=progress is False))
        stack.enter_context(run.locked())
        trainer = _Trainer(task, split, run)
        if run.exists():
            run.check(recipe, facts)
            resumed = trainer.load_state(task.device)
            run.forget_after(trainer.step_number if resumed else -1)
        else:
            run.start(recipe, facts)
        try:
            with reporting(progress, run.path, metric=task.metric, resume=resume) as read:
                train(
                    trainer,
                    run,
                    log_steps=recipe.run.log_steps,
                    save_minutes=recipe.run.save_minutes,
                    evaluate_every=often * n_examples,
                    patience=recipe.schedule.patience,
                    unit="examples",
                    score=lambda found: found[task.metric],
                    report=lambda line: read(
                        {**line, "epoch": round(line["examples"] / n_examples)}
                    ),
                )
        except Stopped:
            # The best model so far stays behind, for use.
            if trainer.scores or not split.dev:
                trainer.finish()
                task.scores = {task.metric: trainer.best} if trainer.scores else {}
                task.save(run.checkpoint_path, overwrite=True)
            raise
        trainer.finish()
        none = Report(name=task.name, metrics={})
        measured = task.measured(split.dev) if split.dev else none
        task.scores = measured.metrics
        task.save(run.checkpoint_path, overwrite=True)
        report = _report(trainer, measured, often)
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


# --------------------------------------------------------------------- what the loop trains


def batches(lengths: Sequence[int], size: int, seed: int, epoch: int) -> list[list[int]]:
    """Numbers of the examples of each batch: similar lengths, in an order of the epoch's own."""
    generator = numpy_generator(seed, "batches", epoch)
    noise = generator.uniform(1 - _LENGTH_NOISE, 1 + _LENGTH_NOISE, len(lengths))
    # The second noise shuffles examples of length 0, which the first leaves in their order.
    order = np.argsort(np.array(lengths) * noise + generator.uniform(0, 1e-3, len(noise)))
    cut = [order[k : k + size].tolist() for k in range(0, len(order), size)]
    return [cut[k] for k in generator.permutation(len(cut))]


class _Trainer(Trainable, Generic[Example]):
    """A task for the training loop: steps over batches, evaluations, states, best weights.

    Only weights that require a gradient are changed and saved.
    """

    def __init__(self, task: Task[Example, Any], split: Split[Example], run: Run) -> None:
        super().__init__(run)
        self.task, self.split = task, split
        self.network, recipe = task.network, task.recipe
        self._learning, self._pace, self._size = (
            recipe.optimizer,
            recipe.schedule,
            recipe.data.batch_size,
        )
        self._unfreeze()
        self._lengths = [task.length(example) for example in split.train]
        self._plan: tuple[int, list[list[int]]] = -1, []  # an epoch and its batches
        self.scores: list[float] = []
        self._learned = {n: w for n, w in self.network.named_parameters() if w.requires_grad}
        betas = (self._learning.beta1, self._learning.beta2)
        self.optimizer = make_optimizer(
            self._learning.name, betas=betas, epsilon=self._learning.epsilon
        )
        self._best: dict[str, Tensor] = {}
        if self._learning.average:
            self.means = {name: weight.clone() for name, weight in self.weights().items()}

    def _unfreeze(self) -> None:
        """Let the task learn a copy of the biLM too, if its recipe says so."""
        layers, mixes = self.task.index.layers, self.network.features.elmo
        if self.task.recipe.elmo.trainable and layers is not None and mixes is not None:
            mixes.bilm = copy.deepcopy(layers.cache.elmo.engine.bilm).to(self.task.device)
            for weight in mixes.bilm.parameters():
                weight.requires_grad_(True)
            layers.bilm = mixes.bilm

    def weights(self) -> dict[str, Tensor]:
        return {name: weight.detach() for name, weight in self._learned.items()}

    def total(self) -> int:
        """The examples of the complete run."""
        return self._pace.epochs * len(self.split.train)

    def finished(self) -> bool:
        """Whether all epochs or steps are done."""
        steps = self._pace.steps
        return self.seen >= self.total() or (steps is not None and self.step_number >= steps)

    def step(self) -> StepReport:
        """Learn from one batch."""
        examples = self._batch()
        for weight in self._learned.values():
            weight.grad = None
        self.network.train()
        # Seeded by the step, so that a resumed run drops what the uninterrupted one dropped.
        with seeded(self.task.seed, "dropout", self.step_number):
            loss = self.task.loss(examples)
            loss = loss + self.network.features.penalty(self.task.recipe.elmo.penalty)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
        lr = self._rate()
        norm = self._update(lr)
        self.step_number += 1
        self.seen += len(examples)
        self.follow_weights(self._learning.average)
        return StepReport({"loss": float(loss.detach())}, lr, norm)

    def _batch(self) -> list[Example]:
        epoch, place = divmod(self.step_number, math.ceil(len(self._lengths) / self._size))
        if self._plan[0] != epoch:
            self._plan = epoch, batches(self._lengths, self._size, self.task.seed, epoch)
        return [self.split.train[k] for k in self._plan[1][place]]

    def _rate(self) -> float:
        lr, pace = self._learning.lr, self._pace
        if pace.halve_patience >= 0:
            lr *= plateau_factor(self.scores, patience=pace.halve_patience)
        return float(lr * pace.decay ** (self.step_number // max(1, pace.decay_steps)))

    def _update(self, lr: float) -> float:
        learning = self._learning
        updates = []
        for name, weight in self._learned.items():
            if weight.grad is None:
                continue
            # The gradient of l2 * |w|^2, added before clipping, so that it counts towards the norm.
            if learning.l2 and weight.dim() > 1:  # matrices only
                weight.grad.add_(weight.detach(), alpha=2 * learning.l2)
            updates.append(Update(name, weight.detach(), weight.grad))
        gradients = [update.gradient for update in updates]
        norm = clip_by_global_norm(gradients, learning.clip_norm) if gradients else 0.0
        if learning.clip_value is not None:
            for gradient in gradients:
                gradient.clamp_(-learning.clip_value, learning.clip_value)
        self.optimizer.step(updates, lr)
        return norm

    def evaluate(self) -> dict[str, float] | None:
        """Measure on the held-out examples, with the mean weights if there are any."""
        if not self.split.dev:
            return None
        with self.averaged():
            found = dict(self.task.measured(self.split.dev).metrics)
        self.scores.append(found[self.task.metric])
        if not any(self.scores):
            # All scores are 0 so far: patience begins with the first that is not.
            self.evaluations_since_best = -1  # the loop counts this evaluation next
        return found

    def save_model(self, *, best: bool) -> None:
        """Remember the weights of the best evaluation; states keep them."""
        if best:
            with self.averaged():
                self._best = {name: weight.clone() for name, weight in self.weights().items()}

    def finish(self) -> None:
        """Put the best weights in the network: those of the best evaluation, or the last."""
        chosen = self._best or self.means
        for name, weight in self.weights().items() if chosen else ():
            weight.copy_(chosen[name])
        self.network.eval()
        self.task.take_trained_bilm()

    def own_state(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        return {"best": self._best}, {"scores": self.scores}

    def restore(self, tensors: dict[str, dict[str, Tensor]], facts: Mapping[str, Any]) -> None:
        self._best = tensors.get("best", {})
        self.scores = [float(value) for value in facts["scores"]]


# --------------------------------------------------------------------- reports


def _report(trainer: _Trainer[Any], measured: Report, evaluate_epochs: int) -> Report:
    """What was learned from, how well, and what a simple method reaches."""
    task, split, scores, metric = trainer.task, trainer.split, trainer.scores, trainer.task.metric
    counts, later = task.label_counts(split.train), task.label_counts(split.dev)
    tables = {"labels": label_rows(counts, later), **measured.tables}
    if split.dev and task.baseline_name:
        tables[BASELINE] = [
            {"model": task.name, metric: measured.metrics[metric]},
            {"model": task.baseline_name, metric: task.baseline(split.train, split.dev)},
        ]
    # The last evaluation may come earlier: at the end.
    most = task.recipe.schedule.epochs
    epochs = [min(most, k * evaluate_epochs) for k in range(1, len(scores) + 1)]
    tables[f"{metric} by epoch"] = [
        {"epoch": epoch, metric: score} for epoch, score in zip(epochs, scores, strict=True)
    ]
    tables["mix"] = task.mix_table()
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
        notes=[*split.notes, *_score_notes(scores), *imbalance(counts), *measured.notes],
    )


def _score_notes(scores: Sequence[float]) -> list[str]:
    if scores and max(scores) <= 0:
        return [
            "the score never rose above 0; check that the labels are in the right column; with "
            "little data take a smaller data.batch_size, more schedule.epochs, or a larger "
            "optimizer.lr"
        ]
    if len(scores) > 1:
        return [
            "the same development data chose the epoch, so the score is a little too high; score "
            "test data for a fair comparison"
        ]
    return []


def with_test(trained: Report, tested: Report) -> Report:
    """The report of a training with the scores on test data."""
    about = {**trained.measured_on, **tested.measured_on}
    about.pop("score")  # it says that the scores are on development data
    tables = {**trained.tables, **tested.tables}
    notes = [*trained.notes, *tested.notes]
    return dataclasses.replace(tested, measured_on=about, tables=tables, notes=notes)


def over_seeds(reports: Mapping[int, Report]) -> Report:
    """Sum up the reports of the same training with two seeds or more.

    Metrics are means; `NAME sd` next to each is the standard deviation of a sample (n - 1), and
    the table has every seed.
    """
    first = next(iter(reports.values()))
    values = {name: [report.metrics[name] for report in reports.values()] for name in first.metrics}
    means = {name: statistics.fmean(numbers) for name, numbers in values.items()}
    sds = {name: statistics.stdev(numbers) for name, numbers in values.items()}
    rows: list[Row] = [{"seed": seed, **report.metrics} for seed, report in reports.items()]
    rows += [{"seed": "mean", **means}, {"seed": "sd", **sds}]
    metrics = {k: v for n in means for k, v in ((n, means[n]), (f"{n} sd", sds[n]))}
    curves: dict[Any, list[Any]] = {}
    notes: dict[str, list[str]] = {}  # with the seeds that have them
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

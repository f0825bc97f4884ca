"""Trainings of one task that differ in one thing: what the paper's ablations are made of."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmore._messages import SILENT, Progress
from elmore.embedding.elmo import Elmo
from elmore.embedding.layer_cache import MAX_BYTES
from elmore.errors import ConfigError, ResumeError
from elmore.tasks.recipe import TaskRecipe
from elmore.tasks.supervised import SupervisedTask
from elmore.tasks.task import TASKS, Report, Row
from elmore.training.run import Run
from elmore.training.seeds import numpy_generator

__all__ = ["Outcome", "TaskStudy", "Variant"]


@dataclass(frozen=True)
class Variant:
    """One way to train.

    Attributes:
        name: its row in the table.
        settings: changes of the recipe.
        elmo: whether ELMo enters at all.
        share: part of the training data; parts are nested.
        seeds: how many trainings.
        look_epochs: epochs between two looks.
    """

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    elmo: bool = True
    share: float = 1.0
    seeds: int = 1
    look_epochs: int = 1


@dataclass(frozen=True)
class Outcome:
    """What the trainings of a variant gave.

    Attributes:
        variant: which one.
        scores: of the best epoch on the development data, a seed each.
        curves: of every epoch, a seed each.
        examples: what was learned from.
    """

    variant: Variant
    scores: tuple[float, ...]
    curves: tuple[tuple[float, ...], ...]
    examples: int

    @property
    def mean(self) -> float:
        """Mean score."""
        return statistics.fmean(self.scores)

    @property
    def sd(self) -> float:
        """Standard deviation of the scores."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else 0.0


class TaskStudy:
    """What the studies share: they train variants of a task and compare development scores.

    Args:
        elmo: the model.
        task: name of the task.
        recipe: "laptop", "paper" or the path of a TOML file.
        settings: changes of the recipe, for all variants alike.
        vectors: a file of word vectors.
        seeds: trainings of each variant.
        seed: the first seed.
        out: a folder for the runs, so that a study that was cut off goes on where it was.
        cache: a folder that keeps the layers for next time.
        max_bytes: what that folder may hold.
        progress: counts sentences whose layers are computed.
        report: gets a line for each training that has ended.
    """

    name = "study"

    def __init__(
        self,
        elmo: Elmo,
        *,
        task: str = "ner",
        recipe: str | Path = "laptop",
        settings: Mapping[str, str] | None = None,
        vectors: str | Path | None = None,
        seeds: int = 1,
        seed: int = 0,
        out: str | Path | None = None,
        cache: str | Path | None = None,
        max_bytes: int = MAX_BYTES,
        progress: Progress = SILENT,
        report: Callable[[str], object] = lambda line: None,
    ) -> None:
        if task not in TASKS:
            raise ConfigError(f"task={task!r}; use one of {', '.join(TASKS)}")
        if seeds < 1:
            raise ConfigError(f"seeds={seeds}; use 1 or more")
        self.elmo, self.task, self.recipe = elmo, task, recipe
        self.settings = dict(settings or {})
        self.vectors, self.seeds, self.seed = vectors, seeds, seed
        self.out, self.cache, self.max_bytes = out, cache, max_bytes
        self.progress, self._say = progress, report

    @property
    def kind(self) -> Any:
        """The class of the task."""
        module, name, _ = TASKS[self.task]
        return getattr(importlib.import_module(module), name)

    def compare(self, variants: Sequence[Variant], data: Sequence[str | Path]) -> list[Outcome]:
        """Train all variants.

        Args:
            variants: what to train.
            data: two files, to learn from and to score on.
        """
        if isinstance(data, str | Path) or len(data) != 2:
            raise ConfigError(f"{self.name} takes two files: TRAIN DEV")
        recipes = [self._recipe(variant) for variant in variants]
        reader: SupervisedTask[Any, Any] = self.kind(None, recipe=recipes[0])
        train, dev = reader.examples([data[0]]), reader.examples([data[1]])
        order = numpy_generator(0, "share", len(train)).permutation(len(train)).tolist()
        outcomes = []
        done, total = 0, sum(variant.seeds for variant in variants)
        for variant, recipe in zip(variants, recipes, strict=True):
            size = max(1, round(variant.share * len(train)))
            chosen = [train[k] for k in sorted(order[:size])]
            metric = self.kind.metric
            reports = []
            for seed in range(self.seed, self.seed + variant.seeds):
                reports.append(self._train(variant, recipe, chosen, dev, seed))
                done += 1
                score = reports[-1].metrics[metric]
                self._say(f"{done} of {total}: {variant.name}, seed {seed}: {metric} {score:.2f}")
            outcomes.append(
                Outcome(
                    variant,
                    tuple(report.metrics[metric] for report in reports),
                    tuple(
                        tuple(float(row[metric]) for row in report.tables[f"{metric} by epoch"])  # type: ignore[arg-type]  # a number
                        for report in reports
                    ),
                    size,
                )
            )
        return outcomes

    def report(
        self,
        outcomes: Sequence[Outcome],
        tables: Mapping[str, Sequence[Row]],
        data: Sequence[str | Path],
        notes: Sequence[str] = (),
    ) -> Report:
        """Make the report of a study."""
        return Report(
            name=self.name,
            metrics={outcome.variant.name: outcome.mean for outcome in outcomes},
            measured_on={
                "model": str(self.elmo.checkpoint.origin),
                "task": self.task,
                "score": f"{self.kind.metric} on development data",
                "recipe": str(self.recipe),
                "settings": [f"{key}={value}" for key, value in self.settings.items()] or None,
                "data": [str(path) for path in data],
            },
            tables=tables,
            notes=notes,
        )

    def rows(self, outcomes: Sequence[Outcome]) -> list[Row]:
        """Give a row for each variant; the first one is what gains are counted from."""
        first = outcomes[0].mean
        return [
            {
                "system": outcome.variant.name,
                self.kind.metric: outcome.mean,
                "sd": outcome.sd if len(outcome.scores) > 1 else None,
                "gain": outcome.mean - first,
                "seeds": len(outcome.scores),
            }
            for outcome in outcomes
        ]

    def _recipe(self, variant: Variant) -> TaskRecipe:
        settings = {**self.settings, **variant.settings}
        return TaskRecipe.load(self.recipe, self.task, self.kind.sizes, settings)

    def _train(
        self, variant: Variant, recipe: TaskRecipe, train: list[Any], dev: list[Any], seed: int
    ) -> Report:
        out = None
        if self.out is not None:
            name = variant.name.replace(" ", "-").replace("%", "").replace(",", "")
            out = Path(self.out) / f"{name}-{seed}"
            _check_recipe(Run(out), recipe)
        report: Report = self.kind(
            self.elmo if variant.elmo else None,
            recipe=recipe,
            vectors=self.vectors,
            cache=self.cache,
            max_bytes=self.max_bytes,
            seed=seed,
            device=str(self.elmo.engine.device),
            progress=self.progress,
        ).fit(train, dev=dev, out=out, resume=True, look_epochs=variant.look_epochs)
        return report


def _check_recipe(run: Run, recipe: TaskRecipe) -> None:
    """Refuse a run of another recipe, though it could go on: its scores are that recipe's."""
    changed = run.changed(recipe) if run.exists() else {}
    # When to log and to save is nothing that scores depend on.
    odd = [
        f"{key}={old!r}, not {new!r}"
        for key, (old, new) in changed.items()
        if not key.startswith("run.")
    ]
    if odd:
        raise ResumeError(
            f"'{run.path}' was trained with {', '.join(odd)}; use the same or another folder for "
            "the runs"
        )

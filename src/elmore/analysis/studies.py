"""Studies of trained tasks: ablations, which change one thing (§5.1, 5.2, 5.4), and mixes (§5.5).

A new ablation is a subclass of `TaskStudy` with its `variants`.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from elmore.base.messages import SILENT, Progress, say, wants_reports
from elmore.elmo import Elmo
from elmore.errors import ConfigError, InputError
from elmore.report import Report, Row
from elmore.tasks import PAPER_TASKS
from elmore.tasks.folder import load, runs_of, task_class
from elmore.tasks.recipe import TaskRecipe
from elmore.tasks.task import Task
from elmore.training.seeds import numpy_generator

_SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)
# Small samples are given more epochs, so that they see about as many examples; within reason.
_MAX_EPOCHS = 10
# Evaluations are at least a tenth of the data apart: after a few steps each, patience would end a
# run that has hardly begun.
_EVALUATION_SHARE = 0.1
# From this share on, scores vary little between seeds, and runs take long: one seed is enough.
_ONE_SEED_FROM = 0.3


class Variant(NamedTuple):
    """One way to train.

    Attributes:
        name: its row in the table.
        settings: changes of the recipe.
        elmo: whether ELMo enters at all.
        share: part of the training data; smaller shares are parts of larger ones.
        seeds: how many runs; None for those of the study.
        evaluate_epochs: epochs between two evaluations.
    """

    name: str
    settings: Mapping[str, str] = {}
    elmo: bool = True
    share: float = 1.0
    seeds: int | None = None
    evaluate_epochs: int = 1


class Outcome(NamedTuple):
    """What the runs of a variant gave.

    Attributes:
        variant: which one.
        scores: of the best epoch on the development data, one per seed.
        curves: of every epoch, one per seed.
        examples: what was learned from.
    """

    variant: Variant
    scores: Sequence[float]
    curves: Sequence[Sequence[float]]
    examples: int

    @property
    def mean(self) -> float:
        """Mean score."""
        return statistics.fmean(self.scores)

    @property
    def sd(self) -> float | None:
        """Standard deviation of the scores, if there are several."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None


@dataclass(eq=False)
class TaskStudy:
    """What the studies share: they train variants of a task and compare development scores.

    Args:
        elmo: the model.
        task: one of the paper's six; taggers and classifiers do not mix layers.
        recipe: "laptop", "paper" or the path of a TOML file.
        settings: changes of the recipe, the same for all variants.
        vectors: a file of word vectors.
        seeds: runs of each variant.
        seed: the first seed.
        out: a folder for the runs, so that a study that was interrupted can resume.
        cache: a folder that keeps the layers for next time.
        progress: counts sentences whose layers are computed.
    """

    name: ClassVar[str]

    elmo: Elmo
    _: KW_ONLY
    task: str = "ner"
    recipe: str | Path = "laptop"
    settings: Mapping[str, str] | None = None
    vectors: str | Path | None = None
    seeds: int = 1
    seed: int = 0
    out: str | Path | None = None
    cache: str | Path | None = None
    progress: Progress = SILENT

    def __post_init__(self) -> None:
        if self.task not in PAPER_TASKS:
            raise ConfigError(f"task={self.task!r}; use one of {', '.join(PAPER_TASKS)}")
        if self.seeds < 1:
            raise ConfigError(f"seeds={self.seeds}; use 1 or more")
        self.kind: type[Task[Any, Any]] = task_class(self.task)

    def variants(self) -> list[Variant]:
        """What to train; the first is the baseline that gains are counted from."""
        raise NotImplementedError

    def run(self, data: Sequence[str | Path]) -> Report:
        """Train and compare.

        Args:
            data: two files, TRAIN and DEV.
        """
        if isinstance(data, str | Path) or len(data) != 2:
            raise ConfigError(f"{self.name} takes two files: TRAIN DEV")
        outcomes = self._outcomes(data)
        tables, notes = self._tables(outcomes)
        settings = [f"{key}={value}" for key, value in (self.settings or {}).items()]
        return Report(
            name=self.name,
            metrics={outcome.variant.name: outcome.mean for outcome in outcomes},
            measured_on={
                "model": str(self.elmo.checkpoint.origin),
                "task": self.task,
                "score": f"{self.kind.metric} on development data",
                "recipe": str(self.recipe),
                "settings": settings or None,
                "data": [str(path) for path in data],
            },
            tables=tables,
            notes=notes,
        )

    def _tables(self, outcomes: Sequence[Outcome]) -> tuple[dict[str, list[Row]], list[str]]:
        """The tables of the report, and its notes."""
        rows: list[Row] = [
            {
                "system": outcome.variant.name,
                self.kind.metric: outcome.mean,
                "sd": outcome.sd,
                "gain": outcome.mean - outcomes[0].mean,
                "seeds": len(outcome.scores),
            }
            for outcome in outcomes
        ]
        return {self.name: rows}, []

    def _outcomes(self, data: Sequence[str | Path]) -> list[Outcome]:
        variants = self.variants()
        recipes = [self._recipe(variant.settings) for variant in variants]
        reader = self.kind(None, recipe=recipes[0])
        train, dev = reader.examples([data[0]]), reader.examples([data[1]])
        # One order for all shares: what a small share holds, larger ones hold too.
        order = numpy_generator(0, "share", len(train)).permutation(len(train)).tolist()
        metric = self.kind.metric
        outcomes = []
        done, total = 0, sum(variant.seeds or self.seeds for variant in variants)
        for variant, recipe in zip(variants, recipes, strict=True):
            size = max(1, round(variant.share * len(train)))
            chosen = [train[k] for k in sorted(order[:size])]
            scores, curves = [], []
            for seed in range(self.seed, self.seed + (variant.seeds or self.seeds)):
                report = self._train(variant, recipe, chosen, dev, seed)
                scores.append(report.metrics[metric])
                curve = report.tables[f"{metric} by epoch"]
                curves.append([float(row[metric] or 0) for row in curve])
                done += 1
                if wants_reports():
                    score = f"{metric} {scores[-1]:.2f}"
                    say(f"{done} of {total}: {variant.name}, seed {seed}: {score}")
            outcomes.append(Outcome(variant, scores, curves, size))
        return outcomes

    def _train(
        self, variant: Variant, recipe: TaskRecipe, train: list[Any], dev: list[Any], seed: int
    ) -> Report:
        out = None
        if self.out is not None:
            name = variant.name.replace(" ", "-").replace("%", "").replace(",", "")
            out = Path(self.out) / f"{name}-{seed}"
        return self.kind(
            self.elmo if variant.elmo else None,
            recipe=recipe,
            vectors=self.vectors,
            cache=self.cache,
            seed=seed,
            device=str(self.elmo.engine.device),
            progress=self.progress,
        ).fit(
            train,
            dev=dev,
            out=out,
            resume=True,
            progress=False,
            evaluate_epochs=variant.evaluate_epochs,
        )

    def _recipe(self, changes: Mapping[str, str]) -> TaskRecipe:
        settings = {**(self.settings or {}), **changes}
        return TaskRecipe.load(self.recipe, self.task, self.kind.sizes, settings)


@dataclass(eq=False, kw_only=True)
class LayerWeighting(TaskStudy):
    """Train a task without ELMo, with its last layer, and with all layers under two penalties.

    Lambda 1 keeps the mix close to an equal one, lambda 0.001 leaves it free (§5.1, Table 2).

    Examples:
        >>> report = LayerWeighting(elmo, task="ner").run(["train.conll", "dev.conll"])
        >>> list(report.metrics)
        ['baseline', 'last only', 'lambda 1', 'lambda 0.001']
    """

    name = "layers"

    def variants(self) -> list[Variant]:
        """The four rows of Table 2."""
        return [
            Variant("baseline", elmo=False),
            Variant("last only", {"elmo.layers": '"top"'}),
            Variant("lambda 1", {"elmo.penalty": "1.0"}),
            Variant("lambda 0.001", {"elmo.penalty": "0.001"}),
        ]


@dataclass(eq=False, kw_only=True)
class Placement(TaskStudy):
    """Train a task with ELMo at its input, at its output, and at both (§5.2, Table 3).

    Examples:
        >>> report = Placement(elmo, task="ner").run(["train.conll", "dev.conll"])
        >>> list(report.metrics)
        ['baseline', 'input only', 'input and output', 'output only']
    """

    name = "placement"

    def variants(self) -> list[Variant]:
        """The baseline and the three columns of Table 3."""
        places = {
            "input only": ("true", "false"),
            "input and output": ("true", "true"),
            "output only": ("false", "true"),
        }
        return [
            Variant("baseline", elmo=False),
            *(
                Variant(name, {"elmo.input": below, "elmo.output": above})
                for name, (below, above) in places.items()
            ),
        ]


@dataclass(eq=False, kw_only=True)
class SampleSize(TaskStudy):
    """Train a task on growing, nested parts of its data, with and without ELMo (§5.4, Figure 1).

    Args:
        shares: parts of the training data, from 0 to 1. The other arguments are those of
            `TaskStudy`; `seeds` counts for shares below 30 %, from there on it is one.

    Examples:
        >>> report = SampleSize(elmo, task="ner", seeds=3).run(["train.conll", "dev.conll"])
        >>> list(report.metrics)[:2]
        ['1 % baseline', '1 % elmo']
    """

    name = "sample-size"

    shares: Sequence[float] = _SHARES

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.shares or not all(0 < share <= 1 for share in self.shares):
            raise ConfigError(f"shares={list(self.shares)}; use parts above 0 and up to 1")

    def variants(self) -> list[Variant]:
        """The baseline and ELMo at each share."""
        epochs = self._recipe({}).schedule.epochs
        variants = []
        for share in sorted(set(self.shares)):
            longer = {"schedule.epochs": str(round(epochs * min(_MAX_EPOCHS, 1 / share)))}
            seeds = self.seeds if share < _ONE_SEED_FROM else 1
            apart = max(1, round(_EVALUATION_SHARE / share))
            for elmo in (False, True):
                name = f"{100 * share:g} % {'elmo' if elmo else 'baseline'}"
                variants.append(Variant(name, longer, elmo, share, seeds, apart))
        return variants

    def _tables(self, outcomes: Sequence[Outcome]) -> tuple[dict[str, list[Row]], list[str]]:
        pairs = list(zip(outcomes[::2], outcomes[1::2], strict=True))
        rows: list[Row] = [
            {
                "share": 100 * baseline.variant.share,
                "examples": baseline.examples,
                "baseline": baseline.mean,
                "baseline sd": baseline.sd,
                "elmo": elmo.mean,
                "elmo sd": elmo.sd,
                "gain": elmo.mean - baseline.mean,
            }
            for baseline, elmo in pairs
        ]
        # The scores of every epoch at the largest share, first seed.
        largest, other = pairs[-1]
        curves = itertools.zip_longest(largest.curves[0], other.curves[0])
        epochs: list[Row] = [
            {"epoch": k * largest.variant.evaluate_epochs, "baseline": one, "elmo": two}
            for k, (one, two) in enumerate(curves, 1)
        ]
        return {self.name: rows, "epochs": epochs}, _findings(pairs)


def _findings(pairs: Sequence[tuple[Outcome, Outcome]]) -> list[str]:
    """The epochs and the data that ELMo saves, as the paper puts it."""
    baseline, elmo = pairs[-1]
    goal = max(baseline.curves[0])
    if goal <= 0:
        return ["the baseline learned nothing on all of the data; give it more epochs"]
    apart = baseline.variant.evaluate_epochs
    when = next((k * apart for k, score in enumerate(elmo.curves[0], 1) if score >= goal), None)
    needed = apart * (baseline.curves[0].index(goal) + 1)
    share = next((o.variant.share for _, o in pairs if o.mean >= baseline.mean), None)
    return [
        f"the baseline is best after epoch {needed}; ELMo reaches that score "
        + (f"after epoch {when}" if when else "never"),
        f"the smallest share at which ELMo reaches the baseline's {100 * baseline.variant.share:g} "
        f"% score: {f'{100 * share:g} %' if share else 'none'}",
        "the paper (SRL): 1 % of the data with ELMo is about the baseline's 10 %",
    ]


# --------------------------------------------------------------------------- learned mixes


class Mixes:
    """Collect the mixes of trained tasks; runs of the same kind are averaged.

    Examples:
        >>> report = Mixes().run(["runs/ner", "runs/srl"])
        >>> share = report.tables["mix"][0]["layer 1"]
    """

    def run(self, data: Sequence[str | Path]) -> Report:
        """Read trained tasks.

        Args:
            data: their folders, or those of their runs; a folder of several seeds counts as all
                of them.
        """
        if isinstance(data, str | Path) or not data:
            raise ConfigError("mix takes folders of trained tasks; name one or more")
        runs = [run for path in data for run in runs_of(path)]
        without: list[str] = []
        # Shares of a softmax over just these layers: no others can be averaged with them.
        groups: dict[tuple[str, Any, tuple[str, ...], float], list[Row]] = {}
        for run in runs:
            task: Any = load(run)
            # Where layers enter side by side, there is no mix.
            mixes = [row for row in task.mix_table() if "place" in row]
            if not mixes:
                without.append(str(run))
            for row in mixes:
                layers = tuple(name for name in row if name.startswith("layer "))
                key = (task.name, row["place"], layers, task.recipe.elmo.penalty)
                groups.setdefault(key, []).append(row)
        if not groups:
            raise InputError(
                "none of these tasks has learned a mix: baselines have no layers, and tag and "
                "classify read all of them side by side; name others"
            )
        notes = [f"without a mix, left out: {', '.join(without)}"] if without else []
        every = {name for _, _, names, _ in groups for name in names}
        order = sorted(every, key=lambda name: (len(name), name))  # layer 2 before layer 10
        rows: list[Row] = []
        metrics: dict[str, float] = {}
        for (name, place, names, penalty), group in groups.items():
            columns = {layer: [float(row[layer] or 0) for row in group] for layer in names}
            means = {layer: statistics.fmean(column) for layer, column in columns.items()}
            spread = [max(column) - min(column) for column in columns.values()]
            rows.append(
                {
                    "task": name,
                    "place": place,
                    **{layer: means.get(layer) for layer in order},
                    "range": max(spread) if len(group) > 1 else None,
                    "gamma": statistics.fmean(float(row["gamma"] or 0) for row in group),
                    "lambda": penalty,
                    "trainings": len(group),
                }
            )
            if len(names) > 1:
                title = f"{name} {place} layer 1 of {len(names)}, lambda {penalty:g}"
                metrics[title] = means["layer 1"]
        return Report(
            name="mix",
            metrics=metrics,
            measured_on={"model": None, "trained tasks": list(map(str, runs))},
            tables={"mix": rows},
            notes=[
                "the paper: at the input the first LSTM layer is favoured; at the output the "
                "weights are balanced, slightly in favour of lower layers",
                "without layer norm layers differ in scale: a weight is not a share of the sum",
                *notes,
            ],
        )

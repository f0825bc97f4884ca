"""What `tag` and `classify` share: any labelled data, a held-out part, a baseline, explanations."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch

from elmore.elmo import Elmo
from elmore.embedding.layer_cache import cache_folder
from elmore.errors import ConfigError, InputError
from elmore.report import Report, Row
from elmore.tasks.data.labelled import Columns
from elmore.tasks.predictions import Example, Prediction
from elmore.tasks.recipe import FEW
from elmore.tasks.supervised import Task

__all__ = ["LabelledTask", "mistake_tables", "refuse_single", "refuse_unknown"]

_SHOWN = 10
# From this ratio on, the rarest label may never be predicted.
_RARE = 10
_CURVE = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)


class LabelledTask(Task[Example, Prediction]):
    """A task on a user's own data.

    Args:
        elmo: as in `Task`, like the `options`.
        text: the column of the texts or tokens; the usual names are found without.
        label: the column of the labels or tags.
        separator: what separates several labels in one cell.
        options: recipe, vectors, cache, seed and so on.

    Attributes:
        baseline_name: what the baseline is.
        kind: of the labels, by all of the data; None before `fit`. A part of them may look
            different.
    """

    baseline_name: str
    kind: str | None = None
    guess_size = 64

    def __init__(
        self,
        elmo: Elmo | None = None,
        *,
        text: str | None = None,
        label: str | None = None,
        separator: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(elmo, **options)
        if self.recipe.elmo.output:
            raise ConfigError(f"{self.name} reads ELMo at its input only; set elmo.output=false")
        self.columns = Columns(text=text, label=label, separator=separator)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        text: str | None = None,
        label: str | None = None,
        separator: str | None = None,
        **options: Any,
    ) -> Self:
        """Load a trained model.

        Args:
            path: its folder, or that of the run that made it.
            text: the column of the texts or tokens in data to evaluate on.
            label: the column of the labels or tags.
            separator: what separates several labels in one cell; by default as in training.
            options: as in `Task.load`.
        """
        task = super().load(path, **options)
        stored = task.labels.get("separator")
        separator = stored if separator is None and isinstance(stored, str) else separator
        task.columns = Columns(text=text, label=label, separator=separator)
        return task

    @abstractmethod
    def from_lists(self, x: Sequence[Any], y: Sequence[Any]) -> list[Example]:
        """Examples from lists of items and labels."""

    @abstractmethod
    def read(self, data: Any) -> list[Example]:
        """Examples from a file, a folder, a data frame or a dataset."""

    @abstractmethod
    def label_counts(self, examples: Iterable[Example]) -> Counter[str]:
        """How often each label occurs."""

    @abstractmethod
    def pairs(
        self, examples: Sequence[Example], found: Sequence[Prediction]
    ) -> list[tuple[str, str]]:
        """The right and the predicted label of each item."""

    @abstractmethod
    def find_kind(self, examples: Sequence[Example]) -> str:
        """What kind of labels there are."""

    @abstractmethod
    def hold_out(self, examples: Sequence[Example]) -> tuple[list[Example], list[Example], str]:
        """What to learn from, what to evaluate on, and in words how that was chosen."""

    @abstractmethod
    def baseline(self, train: Sequence[Example], held_out: Sequence[Example]) -> float:
        """The score of a simple method without ELMo."""

    def examples(self, data: Any, y: Sequence[Any] | None = None) -> list[Example]:
        """Read labelled data: files, lists (X, y), a table of any kind, or examples.

        A table is a data frame, a dataset, or a dictionary of columns.
        """
        if y is not None:
            x, y = list(data), list(y)
            if len(x) != len(y):
                raise InputError(f"{len(x)} items but {len(y)} labels; give one label per item")
            return self.from_lists(x, y)
        table = hasattr(data, "columns") or hasattr(data, "column_names")
        if table or isinstance(data, Mapping):
            return self.read(data)
        if isinstance(data, tuple) and len(data) == 2 and not isinstance(data[0], str | Path):
            return self.examples(*data)
        return super().examples(data)

    def fit(
        self,
        train: Any,
        y: Sequence[Any] | None = None,  # second, as in scikit-learn
        *,
        dev: Any = None,
        out: str | Path | None = None,
        **options: Any,
    ) -> Report:
        """Learn from labelled data; without `dev`, a tenth of it is held out.

        Args:
            train: files, a folder, texts or token lists with `y`, a data frame or a dataset.
            y: the labels, if `train` is a list of items.
            dev: the same kinds of data, or (X, y), to evaluate on.
            out: folder of the run.
            options: as in `Task.fit`.
        """
        examples, held_out, how = self._divided(train, y, dev)
        before = self.cache
        with cache_folder(self.cache) as folder:  # one for the training and what follows
            self.cache = folder
            try:
                options.setdefault("evaluate_epochs", self._evaluate_epochs(len(examples)))
                report = super().fit(examples, dev=held_out or None, out=out, **options)
                scored = self.evaluate(held_out) if held_out else None
            finally:
                self.cache = before
        report = self._explained(report, scored, examples, held_out, how)
        if out is not None:
            report.save(Path(out) / "report.json", overwrite=True)
        return report

    def _divided(
        self, train: Any, y: Sequence[Any] | None, dev: Any
    ) -> tuple[list[Example], list[Example], str]:
        """As `hold_out`; nothing is held out, in no words, if there is a `dev`."""
        examples = self.examples(train, y)
        self.kind = self.find_kind(examples)
        if dev is not None:
            return examples, self.examples(dev), ""
        return self.hold_out(examples)

    def _evaluate_epochs(self, n_examples: int) -> int:
        """Epochs between evaluations; with few examples there is one, at the end.

        A choice of an epoch by a tenth of few examples is chance, and often ends a run too early.
        """
        return self._asked.fitted(n_examples).schedule.epochs if n_examples < FEW else 1

    def _explained(
        self,
        report: Report,
        scored: Report | None,
        examples: Sequence[Example],
        held_out: Sequence[Example],
        how: str,
    ) -> Report:
        """The report of a training with the labels, the baseline and the mistakes."""
        counts, later = self.label_counts(examples), self.label_counts(held_out)
        tables: dict[str, Sequence[Row]] = {"labels": _label_rows(counts, later)}
        notes = [*report.notes, *_imbalance(counts)]
        if how and held_out:
            notes.append(
                f"no development data: {len(held_out)} of {len(examples) + len(held_out)} examples "
                f"were held out to evaluate on ({how}, seed {self.seed})"
            )
        if scored is not None:
            simple = self.baseline(examples, held_out)
            tables |= scored.tables
            tables["against a baseline"] = [
                {"model": self.name, self.metric: scored.metrics[self.metric]},
                {"model": self.baseline_name, self.metric: simple},
            ]
        tables |= report.tables
        return dataclasses.replace(report, tables=tables, notes=notes)

    def curve(self, train: Any, y: Sequence[Any] | None = None, *, dev: Any = None) -> list[Row]:
        """Train on growing parts of the data: one row per part, with the baseline beside it."""
        examples, held_out, _ = self._divided(train, y, dev)
        if not held_out:
            raise InputError("a learning curve needs 10 examples or more; label some more")
        order = torch.randperm(
            len(examples), generator=torch.Generator().manual_seed(self.seed)
        ).tolist()
        rows: list[Row] = []
        with cache_folder(self.cache) as folder:
            for share in _CURVE:
                part = [examples[k] for k in order[: max(2, round(share * len(order)))]]
                task = type(self)(
                    self.elmo,
                    recipe=self._asked,
                    vectors=self.vectors,
                    cache=folder,
                    seed=self.seed,
                    separator=self.columns.separator,
                )
                task.kind = self.kind
                try:
                    often = self._evaluate_epochs(len(part))
                    report = Task.fit(task, part, dev=held_out, evaluate_epochs=often)
                except InputError:
                    continue  # too few, such as one class only
                score, simple = report.metrics[task.metric], task.baseline(part, held_out)
                rows.append({"examples": len(part), task.metric: score, "baseline": simple})
        return rows

    def evaluate(self, data: Any, y: Sequence[Any] | None = None) -> Report:
        """Score predictions on labelled data, as `fit` takes it."""
        return super().evaluate(data if y is None else self.examples(data, y))

    def mix_table(self) -> list[Row]:
        """The learned mix, or how much of the first layer's weights reads each layer (percent)."""
        elmo, features = self.elmo, self.network.features
        if elmo is None or features.elmo is None or features.elmo.mixes:
            return super().mix_table()
        weight: torch.Tensor = self.network.project.weight.detach()  # type: ignore[union-attr, operator]
        squares = (weight[:, features.own_dim :] ** 2).sum(0)
        parts = squares.reshape(elmo.n_layers, elmo.dim).sum(1)
        shares = (100 * parts / parts.sum()).tolist()
        return [{f"layer {k}": share for k, share in enumerate(shares)}]


def _label_rows(counts: Counter[str], held_out: Counter[str]) -> list[Row]:
    """How often each label occurs, most frequent first."""
    total = max(1, counts.total())
    order = sorted({*counts, *held_out}, key=lambda name: (-counts[name], name))
    return [
        {
            "label": name,
            "training": counts[name],
            "share": 100 * counts[name] / total,
            "held out": held_out[name],
        }
        for name in order
    ]


def _imbalance(counts: Mapping[str, int]) -> list[str]:
    if len(counts) < 2:
        return []
    top, last = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    if counts[top] <= _RARE * counts[last]:
        return []
    return [
        f"the labels are not balanced: '{top}' occurs {counts[top]} times, '{last}' "
        f"{counts[last]} times; look at the f1 of each label, not at the accuracy alone"
    ]


def mistake_tables(
    pairs: Sequence[tuple[str, str]], items: Iterable[tuple[float, Row]]
) -> dict[str, list[Row]]:
    """The most frequent confusions, and the mistakes that the model was most certain of.

    Args:
        pairs: the right and the predicted label of each item.
        items: of each the probability of the predicted label, and what to show.
    """
    both = zip(pairs, items, strict=True)
    wrong = [
        (chance, {"right": a, "predicted": b, **shown})
        for (a, b), (chance, shown) in both
        if a != b
    ]
    times = Counter((row["right"], row["predicted"]) for _, row in wrong)
    often = sorted(times, key=lambda pair: (-times[pair], pair))[:_SHOWN]
    surest = sorted(wrong, key=lambda mistake: -mistake[0])[:_SHOWN]
    tables: dict[str, list[Row]] = {
        "confusions": [{"right": a, "predicted": b, "times": times[a, b]} for a, b in often],
        "most confident mistakes": [{**row, "probability": chance} for chance, row in surest],
    }
    return tables if wrong else {}


def refuse_unknown(labels: Iterable[str], known: Sequence[str], where: str) -> None:
    """Refuse labels that were not in the training data."""
    for label in labels:
        if label not in known:
            raise InputError(
                f"{where}: the label '{label}' does not occur in the training data; its labels are "
                f"{', '.join(known[:8])}"
            )


def refuse_single(names: Sequence[str], what: str) -> None:
    """Refuse training data with one label only."""
    if len(names) < 2:
        found = f"'{names[0]}' everywhere" if names else "none"
        raise InputError(f"there is only one {what}, {found}; a model needs two or more")

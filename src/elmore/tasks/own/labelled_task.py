"""What `tag` and `classify` share: any labelled data, a baseline, explanations, and the network."""

from __future__ import annotations

import copy
import dataclasses
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from elmore.elmo import Elmo
from elmore.embedding.layer_cache import cache_folder
from elmore.errors import ConfigError, InputError
from elmore.report import Report, Row
from elmore.tasks.encoders import (
    BiLstmStack,
    Crf,
    SelfAttentivePooling,
    VariationalDropout,
    masked_max,
    masked_mean,
)
from elmore.tasks.features import Network, TokenFeatures, Tokens
from elmore.tasks.fitting import Split, fit_task
from elmore.tasks.own.light import SCALE, WORD_GAIN
from elmore.tasks.predictions import Example, Prediction
from elmore.tasks.recipe import FEW
from elmore.tasks.task import Task
from elmore.training.display import TrainingProgress
from elmore.training.seeds import numpy_generator

_SHOWN = 10
# From this ratio on, the rarest label may never be predicted.
_RARE = 10
_CURVE = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)


class LabelledTask(Task[Example, Prediction]):
    """A task on a user's own data.

    Args:
        elmo: as in `Task`, like the `options`.
        text: the column of the texts or tokens; by default one of the usual names.
        label: the column of the labels or tags.
        separator: what separates several labels in one cell.
        options: recipe, vectors, cache, seed and so on.
    """

    baseline_name: str  # what the baseline is
    elmo_at_output: ClassVar[bool] = False  # whether the network can read ELMo there too
    kind: str | None = None  # of the labels, by all of the data; a part may look different
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
        if self.recipe.elmo.output and not self.elmo_at_output:
            raise ConfigError(f"{self.name} reads ELMo at its input only; set elmo.output=false")
        self.columns: dict[str, Any] = {"text": text, "label": label}
        self.separator = separator

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """Load a trained model; options are those of `Task.load` and of the class."""
        task = super().load(path, **options)
        stored = task.labels.get("separator")
        if task.separator is None and isinstance(stored, str):
            task.separator = stored
        return task

    @abstractmethod
    def from_lists(self, x: Sequence[Any], y: Sequence[Any]) -> list[Example]:
        """Examples from lists of items and labels."""

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
        table: Any = data  # of which `read` of these tasks takes any kind, not files alone
        if isinstance(data, Mapping) or hasattr(data, "columns") or hasattr(data, "column_names"):
            return self.read(table)
        if isinstance(data, tuple) and len(data) == 2 and not isinstance(data[0], str | Path):
            return self.examples(*data)
        return super().examples(data)

    def fit(
        self,
        train: Any,
        y: Sequence[Any] | None = None,  # second, as in scikit-learn
        *,
        dev: Any = None,
        **options: Any,
    ) -> Report:
        """Learn from labelled data; without `dev`, a tenth of it is held out.

        Args:
            train: files, a folder, texts or token lists with `y`, a data frame or a dataset.
            y: the labels, if `train` is a list of items.
            dev: the same kinds of data, or (X, y), to evaluate on.
            options: as in `Task.fit`.
        """
        return super().fit(train if y is None else (train, y), dev=dev, **options)

    def divide(self, examples: list[Example], dev: list[Example] | None) -> Split[Example]:
        self.kind = self.find_kind(examples)
        return super().divide(examples, dev)

    def evaluate_epochs(self, n_examples: int) -> int:
        """Epochs between evaluations; with few examples there is one, at the end.

        A choice of an epoch by a tenth of few examples is chance, and often ends a run too early.
        """
        return self._asked[1].fitted(n_examples).schedule.epochs if n_examples < FEW else 1

    def explain(self, report: Report, measured: Report, split: Split[Example]) -> Report:
        """Add the labels, the baseline and the mistakes."""
        counts, later = self.label_counts(split.train), self.label_counts(split.dev)
        tables: dict[str, Sequence[Row]] = {"labels": _label_rows(counts, later)}
        notes = [*report.notes, *_imbalance(counts), *measured.notes]
        if split.dev:
            simple = self.baseline(split.train, split.dev)
            tables |= measured.tables
            tables["against a baseline"] = [
                {"model": self.name, self.metric: measured.metrics[self.metric]},
                {"model": self.baseline_name, self.metric: simple},
            ]
        tables |= report.tables
        return dataclasses.replace(report, tables=tables, notes=notes)

    def curve(
        self,
        train: Any,
        y: Sequence[Any] | None = None,
        *,
        dev: Any = None,
        progress: TrainingProgress = None,
    ) -> list[Row]:
        """Train on growing parts of the data: one row per part, with the score of the baseline.

        Arguments are those of `fit`.
        """
        data = self.examples(train, y)
        split = self.divide(data, None if dev is None else self.examples(dev))
        if not split.dev:
            raise InputError("a learning curve needs 10 examples or more; label some more")
        order = numpy_generator(self.seed, "curve").permutation(len(split.train)).tolist()
        rows: list[Row] = []
        with cache_folder(self.cache) as folder:
            for share in _CURVE:
                part = [split.train[k] for k in order[: max(2, round(share * len(order)))]]
                task = copy.copy(self)
                task.cache = folder
                try:
                    report = fit_task(task, Split(part, split.dev), progress=progress)
                except InputError:
                    continue  # too few, such as one class only
                first, second = report.tables["against a baseline"]
                score, simple = first[task.metric], second[task.metric]
                rows.append({"examples": len(part), task.metric: score, "baseline": simple})
        return rows

    def evaluate(self, data: Any, y: Sequence[Any] | None = None) -> Report:
        """Score predictions on labelled data, as `fit` takes it."""
        return super().evaluate(data if y is None else self.examples(data, y))

    def mix_table(self) -> list[Row]:
        """The learned mix, or how much of the first layer's weights reads each layer (percent)."""
        elmo, features = self.elmo, self.network.features
        project = getattr(self.network, "project", None)
        if elmo is None or features.elmo is None or features.elmo.mixes or project is None:
            return super().mix_table()
        squares = (project.weight.detach()[:, features.own_dim :] ** 2).sum(0)
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

    Each item has a pair, the right and the predicted label; and the probability of the latter with
    what to show.
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


def refuse_single(names: Sequence[str], what: str) -> None:
    """Refuse training data with one label only."""
    if len(names) < 2:
        found = f"'{names[0]}' everywhere" if names else "none"
        raise InputError(f"there is only one {what}, {found}; a model needs two or more")


# --------------------------------------------------------------------- the network


class LightNetwork(Network):
    """The network of `tag` and `classify`, so small that `tasks/own/light.py` repeats it in numpy.

    A ReLU layer projects each token. Then it sees its two neighbours by another one or, by a
    biLSTM, all of its sentence, and is scored. A text is pooled before: the maximum, the mean and a
    learned average of its tokens.

    Dropout is before each layer; with a biLSTM on the features, one mask per sentence, and before
    the scores. With a `bag`, each training word adds scores of its own to a text, at any position.
    What the biLM says of rare words is vague, so small data gains: with 1,000 reviews two points.
    """

    def __init__(
        self,
        features: TokenFeatures,
        hidden: int,
        dropout: float,
        outputs: int,
        *,
        lstm: bool,
        crf: bool = False,
        pooled: bool = False,
        bag: bool = False,
    ) -> None:
        super().__init__(features)
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(features.dim, hidden)
        if lstm:
            # No dropout between the two layers: with it, names were learned more slowly.
            self.encoder = BiLstmStack(hidden, [hidden], 0.0)
            self.input_dropout = VariationalDropout(dropout)
        else:
            self.window = nn.Linear(3 * hidden, hidden)
        width = 2 * hidden if lstm else hidden
        self.output = nn.Linear(3 * width if pooled else width, outputs)
        self.crf = Crf(outputs) if crf else None
        self.pooling = SelfAttentivePooling(width) if pooled else None
        self.word_scores = None
        if bag and features.words is not None and features.words.n_trained:
            # As the rows of the word table; 0 and 1, padding and unknown words, stay at 0.
            self.word_scores = nn.Parameter(torch.zeros(features.words.n_trained + 2, outputs))

    def _hidden(self, tokens: Tokens) -> Tensor:
        """Read tokens, (batch, time, hidden), twice as wide by a biLSTM; zeros at padding."""
        x, _ = self.features(tokens)
        own, real = self.features.own_dim, tokens.mask[:, :, None]
        x = torch.cat([x[:, :, :own], float(SCALE) * x[:, :, own:]], dim=2)
        if hasattr(self, "encoder"):
            x = torch.relu(self.project(self.input_dropout(x))) * real
            read: Tensor = self.encoder(x, tokens.lengths)
            return read
        x = torch.relu(self.project(self.dropout(x))) * real
        x = nn.functional.pad(self.dropout(x), (0, 0, 1, 1))
        wide = torch.cat([x[:, :-2], x[:, 1:-1], x[:, 2:]], dim=2)
        return torch.relu(self.window(wide)) * real

    def forward(self, tokens: Tokens) -> Tensor:
        """Score tokens, (batch, time, outputs), or texts, (batch, outputs)."""
        x, mask = self._hidden(tokens), tokens.mask
        if self.pooling is not None:
            x = torch.cat([masked_max(x, mask), masked_mean(x, mask), self.pooling(x, mask)], 1)
        scores: Tensor = self.output(self.dropout(x))
        if self.word_scores is None:
            return scores
        rows = tokens.words
        known = (rows > 1) & (rows < len(self.word_scores))
        total = nn.functional.embedding(rows * known, self.word_scores, padding_idx=0).sum(1)
        # Divided by the root of the length, as the vector of a text has length 1 in TF-IDF.
        return scores + float(WORD_GAIN) * total / tokens.lengths[:, None].clamp(min=1).sqrt()

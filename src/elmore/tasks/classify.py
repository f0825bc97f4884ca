"""Classes of your own: one label per text, several labels, or a number; predicts in numpy too.

Longer text is read sentence by sentence, and pooled over all of its tokens.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from elmore._imports import require
from elmore.errors import ConfigError, InputError
from elmore.tasks.labelled import LabelledText, as_number, label_names, read_texts, split_labels
from elmore.tasks.labelled_task import (
    LabelledTask,
    confusions,
    refuse_single,
    refuse_unknown,
    surest,
)
from elmore.tasks.layers.features import TokenFeatures
from elmore.tasks.layers.window import TextNetwork
from elmore.tasks.light import Classified, classified, cut_text
from elmore.tasks.metrics import class_scores
from elmore.tasks.parts import Measured, Network
from elmore.tasks.terminal import class_line

__all__ = ["Classifier", "ClassifyExample", "ClassifySizes"]

Label = str | tuple[str, ...] | float | None


@dataclass(frozen=True)
class ClassifyExample:
    """The sentences of a text, its label, labels or number, and where it was read."""

    sentences: tuple[tuple[str, ...], ...]
    label: Label = None
    where: str = dataclasses.field(default="", compare=False, repr=False)

    @property
    def tokens(self) -> tuple[str, ...]:
        """All tokens of the text."""
        return tuple(token for sentence in self.sentences for token in sentence)


@dataclass(frozen=True, kw_only=True)
class ClassifySizes:
    """The section `model`.

    Attributes:
        hidden: size of both layers.
        dropout: before each layer.
        output: "label" for one label per text, "labels" for any number, "number" for a number;
            "auto" decides by the data.
        max_tokens: of longer texts, the first so many tokens are read.
    """

    hidden: int
    dropout: float
    output: Literal["auto", "label", "labels", "number"]
    max_tokens: int


class Classifier(LabelledTask[ClassifyExample, Classified]):
    """Give each text a label, several labels, or a number.

    Examples:
        >>> classifier = Classifier(elmo, seed=0)
        >>> texts = ["It grew .", "It fell .", "Rain fell .", "She grew ."]
        >>> report = classifier.fit(texts, ["up", "down", "down", "up"])
        >>> classifier.predict(["It grew ."])[0].label
        'up'
    """

    name = "classify"
    metric = "accuracy"
    sizes = ClassifySizes
    example = ClassifyExample
    baseline_name = "TF-IDF and a linear model"

    # ------------------------------------------------------------------- data

    def from_table(self, data: Any) -> list[ClassifyExample]:
        return [self._example(found) for found in read_texts(data, self.columns)]

    def from_lists(self, x: Sequence[Any], y: Sequence[Any]) -> list[ClassifyExample]:
        found = []
        for k, (item, label) in enumerate(zip(x, y, strict=True)):
            plain = label.tolist() if isinstance(label, np.generic) else label
            known = tuple(plain) if isinstance(plain, list | tuple | set) else plain
            if not isinstance(known, str | int | float | tuple) or known != known:
                raise ConfigError(f"label {k} is a {type(label).__name__}; use texts or numbers")
            text = self.parse(item)
            if not text.tokens:
                raise InputError(f"item {k} has no text; leave it out")
            found.append(dataclasses.replace(text, label=known, where=f"item {k}"))
        return found

    def _example(self, found: LabelledText) -> ClassifyExample:
        return dataclasses.replace(self.parse(found.text), label=found.label, where=found.where)

    def parse(self, item: str | Sequence[str]) -> ClassifyExample:
        """Take a text, or the tokens of one sentence."""
        most = self.recipe.model.max_tokens
        if isinstance(item, str):
            return ClassifyExample(cut_text(item, self.tokenize, most))
        return ClassifyExample((tuple(item)[:most],) if item else ())

    def texts(self, example: ClassifyExample) -> Sequence[Sequence[str]]:
        return example.sentences

    def length(self, example: ClassifyExample) -> int:
        return sum(map(len, example.sentences))

    def find_labels(self, examples: Sequence[ClassifyExample]) -> dict[str, Any]:
        labels = [example.label for example in examples]
        kind, names = label_names(labels, self.columns.separator)
        chosen = self.recipe.model.output
        if chosen == "number":
            for example in examples:
                if as_number(example.label) is None:
                    raise InputError(f"{example.where}: '{example.label}' is not a number")
        elif chosen != "auto" and chosen != kind:
            names = sorted({n for v in labels for n in split_labels(v, self.columns.separator)})
        kind = kind if chosen == "auto" else chosen
        if kind == "number":
            numbers = np.array([as_number(label) or 0.0 for label in labels])
            scale = float(numbers.std()) or 1.0
            self.metric = "correlation"
            return {"kind": kind, "mean": float(numbers.mean()), "scale": scale}
        self.metric = "f1" if kind == "labels" else "accuracy"
        if examples:
            refuse_single(names, "label")
        return {"kind": kind, "classes": names}

    def labels_fit(self, labels: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> bool:
        outputs = shapes.get("output.bias")
        if labels.get("kind") == "number":
            self.metric = "correlation"
            sizes = (labels.get("mean"), labels.get("scale"))
            return outputs == (1,) and all(isinstance(v, float | int) for v in sizes)
        names = labels.get("classes")
        if labels.get("kind") not in ("label", "labels") or not isinstance(names, list):
            return False
        self.metric = "f1" if labels["kind"] == "labels" else "accuracy"
        return all(isinstance(name, str) for name in names) and outputs == (len(names),)

    def label_counts(self, examples: Iterable[ClassifyExample]) -> Counter[str]:
        if self.labels["kind"] == "number":
            return Counter()
        return Counter(name for example in examples for name in self._names(example))

    def _names(self, example: ClassifyExample) -> tuple[str, ...]:
        """The labels of an example; those of the held-out data must occur in training."""
        single = self.labels["kind"] == "label"
        names = (
            (str(example.label),) if single else split_labels(example.label, self.columns.separator)
        )
        refuse_unknown(names, self.labels["classes"], example.where or "an example")
        return names

    def key(self, example: ClassifyExample) -> str:
        """Labels are held out in proportion; numbers and sets of labels at random."""
        return "" if as_number(example.label) is not None else str(example.label)

    # ------------------------------------------------------------------- network

    def build(self, features: TokenFeatures) -> Network:
        sizes: ClassifySizes = self.recipe.model
        outputs = 1 if self.labels["kind"] == "number" else len(self.labels["classes"])
        return TextNetwork(features, sizes.hidden, sizes.dropout, outputs)

    def _scores(self, examples: Sequence[ClassifyExample]) -> Tensor:
        tokens = self.tokens([e.tokens for e in examples], [e.sentences for e in examples])
        scores: Tensor = self.network(tokens)
        return scores

    def loss(self, examples: Sequence[ClassifyExample]) -> Tensor:
        scores = self._scores(examples)
        kind, device = self.labels["kind"], scores.device
        if kind == "number":
            values = [as_number(example.label) or 0.0 for example in examples]
            wanted = (torch.tensor(values) - self.labels["mean"]) / self.labels["scale"]
            return nn.functional.mse_loss(scores[:, 0], wanted.float().to(device))
        ids = {name: k for k, name in enumerate(self.labels["classes"])}
        known = [
            [ids[name] for name in self._names(e)] if e.label is not None else [0] for e in examples
        ]
        if kind == "label":
            return nn.functional.cross_entropy(scores, torch.tensor(known, device=device)[:, 0])
        target = torch.zeros_like(scores)
        for row, places in enumerate(known):
            target[row, places] = 1.0
        return nn.functional.binary_cross_entropy_with_logits(scores, target)

    def guess(self, examples: Sequence[ClassifyExample]) -> list[Classified]:
        scores = self._scores(examples).cpu().numpy()
        return [classified(row, self.labels) for row in scores]

    # ------------------------------------------------------------------- scores

    def measure(self, examples: Sequence[ClassifyExample], found: Sequence[Classified]) -> Measured:
        if self.labels["kind"] == "number":
            return self._measure_numbers(examples, found)
        names: list[str] = self.labels["classes"]
        gold = [self._names(example) for example in examples]
        if self.labels["kind"] == "labels":
            return _measure_sets(gold, [_as_set(one) for one in found], names)
        pairs = self.pairs(examples, found)
        right, guessed = ([pair[side] for pair in pairs] for side in (0, 1))
        metrics, rows = class_scores(right, guessed, names)
        mistakes = surest(
            (
                one.probabilities.get(str(one.label), 0.0),
                {"right": label, "predicted": str(one.label), "text": _start(example)},
            )
            for example, label, one in zip(examples, right, found, strict=True)
            if label != one.label
        )
        tables = {
            "classes": rows,
            "confusions": confusions(pairs),
            "most confident mistakes": mistakes,
        }
        return Measured(metrics, {name: table for name, table in tables.items() if table})

    def pairs(
        self, examples: Sequence[ClassifyExample], found: Sequence[Classified]
    ) -> list[tuple[str, str]]:
        if self.labels["kind"] != "label":
            raise ConfigError("confusions are for one label per text; leave --plot out")
        both = zip(examples, found, strict=True)
        return [(self._names(example)[0], str(one.label)) for example, one in both]

    def _measure_numbers(
        self, examples: Sequence[ClassifyExample], found: Sequence[Classified]
    ) -> Measured:
        right = np.array([as_number(example.label) or 0.0 for example in examples])
        guessed = np.array([float(one.label) for one in found])  # type: ignore[arg-type]
        flat = not (right.std() and guessed.std())
        metrics = {
            "correlation": 0.0 if flat else 100 * float(np.corrcoef(right, guessed)[0, 1]),
            "mean error": float(np.abs(right - guessed).mean()),
        }
        worst = np.argsort(-np.abs(right - guessed))[:10]
        rows = [
            {"right": right[k], "predicted": guessed[k], "text": _start(examples[k])} for k in worst
        ]
        return Measured(metrics, {"largest errors": rows})

    def baseline(
        self, train: Sequence[ClassifyExample], held_out: Sequence[ClassifyExample]
    ) -> float | None:
        """TF-IDF of words and pairs of words, with a logistic or ridge regression."""
        text: Any = require("sklearn.feature_extraction.text", "tasks", "the baseline")
        linear: Any = require("sklearn.linear_model", "tasks", "the baseline")
        vectors = text.TfidfVectorizer(
            analyzer=_words_and_pairs, sublinear_tf=True, max_features=200_000
        )
        x = vectors.fit_transform([example.tokens for example in train])
        later = vectors.transform([example.tokens for example in held_out])
        kind = self.labels["kind"]
        if kind == "number":
            y = [as_number(example.label) or 0.0 for example in train]
            guessed = linear.Ridge().fit(x, y).predict(later)
            found = [Classified(float(value)) for value in guessed]
        elif kind == "label":
            model = linear.LogisticRegression(C=10.0, max_iter=1000)
            names = [self._names(example)[0] for example in train]
            if len(set(names)) < 2:
                return None
            found = [Classified(str(name)) for name in model.fit(x, names).predict(later)]
        else:
            found = self._several(linear, x, later, train)
        return float(self.measure(held_out, found).metrics[self.metric])

    def _several(
        self, linear: Any, x: Any, later: Any, train: Sequence[ClassifyExample]
    ) -> list[Classified]:
        sets = [set(self._names(example)) for example in train]
        chosen: list[list[str]] = [[] for _ in range(later.shape[0])]
        for name in self.labels["classes"]:
            y = [name in labels for labels in sets]
            if len(set(y)) < 2:
                continue
            guessed = linear.LogisticRegression(C=10.0, max_iter=1000).fit(x, y).predict(later)
            for labels, there in zip(chosen, guessed, strict=True):
                labels += [name] if there else []
        return [Classified(tuple(labels)) for labels in chosen]

    # ------------------------------------------------------------------- use

    def show(self, example: ClassifyExample, found: Classified, *, colour: bool) -> str:
        return class_line(found.label, found.probabilities, " ".join(example.tokens), colour=colour)

    def to_json(self, example: ClassifyExample, found: Classified) -> dict[str, Any]:
        return found.to_json()


def _as_set(found: Classified) -> tuple[str, ...]:
    return found.label if isinstance(found.label, tuple) else (str(found.label),)


def _start(example: ClassifyExample) -> str:
    words = example.tokens[:16]
    return " ".join([*words, *(["…"] if len(example.tokens) > len(words) else [])])


def _words_and_pairs(tokens: Sequence[str]) -> list[str]:
    words = [token.lower() for token in tokens]
    return [*words, *(f"{a} {b}" for a, b in itertools.pairwise(words))]


def _measure_sets(
    gold: Sequence[tuple[str, ...]], found: Sequence[tuple[str, ...]], names: Sequence[str]
) -> Measured:
    pairs = [(set(a), set(b)) for a, b in zip(gold, found, strict=True)]

    def f1(both: int, right: int, guessed: int) -> float:
        return 200 * both / (right + guessed) if right + guessed else 0.0

    rows: list[dict[str, Any]] = []
    for name in names:
        counts = (
            sum(name in a and name in b for a, b in pairs),
            sum(name in a for a, _ in pairs),
            sum(name in b for _, b in pairs),
        )
        rows.append(
            {
                "label": name,
                "f1": f1(*counts),
                "right": counts[0],
                "items": counts[1],
                "predicted": counts[2],
            }
        )
    total = (
        sum(len(a & b) for a, b in pairs),
        sum(len(a) for a, _ in pairs),
        sum(len(b) for _, b in pairs),
    )
    metrics = {
        "f1": f1(*total),
        "mean f1": float(np.mean([row["f1"] for row in rows])),
        "all right": 100 * float(np.mean([a == b for a, b in pairs])),
    }
    return Measured(metrics, {"classes": rows})

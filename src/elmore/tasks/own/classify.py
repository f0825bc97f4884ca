"""Classes of your own: one label per text, several labels, or a number; predicts in numpy too.

Longer text is read sentence by sentence, and pooled over all of its tokens.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from elmore.base.json import BelowOne, Count
from elmore.base.optional import require
from elmore.errors import ConfigError, InputError
from elmore.report import Report
from elmore.tasks.data.labelled import (
    LabelledText,
    as_number,
    label_names,
    read_texts,
    refuse_single,
    split_labels,
)
from elmore.tasks.features import Network, TokenFeatures
from elmore.tasks.fitting import split_held_out
from elmore.tasks.own.tag import LightNetwork
from elmore.tasks.predictions import (
    Classified,
    ClassPredictor,
    classified,
    cut_text,
)
from elmore.tasks.recipe import FEW, TaskRecipe
from elmore.tasks.scores import class_scores, mistake_tables, set_scores
from elmore.tasks.task import Task

Label = str | tuple[str, ...] | float | None


@dataclass(frozen=True)
class ClassifyExample:
    """The sentences of a text, its label, labels or number, and where it was read."""

    sentences: tuple[tuple[str, ...], ...]
    label: Label = None
    where: str = dataclasses.field(default="an example", compare=False, repr=False)

    @property
    def tokens(self) -> tuple[str, ...]:
        """All tokens of the text."""
        return tuple(token for sentence in self.sentences for token in sentence)


@dataclass(frozen=True, kw_only=True)
class ClassifySizes:
    """The section `model`."""

    hidden: Count  # size of both layers
    dropout: BelowOne  # before each layer
    # "label" for one label per text, "labels" for any number, "number" for a number; "auto" decides
    # by the data
    output: Literal["auto", "label", "labels", "number"]
    max_tokens: Count  # of longer texts, the first so many tokens are read
    # "on" if training words have scores of their own; "auto" decides by the size of the data
    bag: Literal["auto", "on", "off"]
    # what the second layer reads: a "window" of three tokens, or all of the text by an "lstm" in
    # both directions; "auto" decides by the size of the data
    context: Literal["auto", "window", "lstm"]


class Classifier(ClassPredictor[ClassifyExample], Task[ClassifyExample, Classified]):
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
    sizes: ClassVar[type] = ClassifySizes
    example: ClassVar[type] = ClassifyExample
    tables = True
    light = True
    reads = "a table"
    baseline_name = "TF-IDF and a linear model"
    # The labels, in the order of the network's outputs, where the data does not decide on them.
    fixed_classes: ClassVar[tuple[str, ...]] = ()

    # ------------------------------------------------------------------- data

    def read(self, data: Any) -> Iterable[ClassifyExample]:
        return self._examples(read_texts(data, **self.columns))

    def from_lists(self, x: Sequence[Any], y: Sequence[Any]) -> list[ClassifyExample]:
        return self._examples(read_texts({"text": x, "label": y}))

    def _examples(self, texts: Iterable[LabelledText]) -> list[ClassifyExample]:
        return [
            dataclasses.replace(self.parse(text), label=label, where=where)
            for text, label, where in texts
        ]

    def parse(self, item: str | Sequence[str]) -> ClassifyExample:
        """Take a text, or the tokens of one sentence."""
        most = self.recipe.model.max_tokens
        if isinstance(item, str):
            return ClassifyExample(cut_text(item, self.split, most))
        tokens = self.split(item)[:most]
        return ClassifyExample((tokens,) if tokens else ())

    def texts(self, example: ClassifyExample) -> Sequence[Sequence[str]]:
        return example.sentences

    def find_kind(self, examples: Sequence[ClassifyExample]) -> str:
        if self.fixed_classes:
            return "label"
        labels = [example.label for example in examples]
        return label_names(labels, self.separator, self.recipe.model.output)[0]

    def find_labels(self, examples: Sequence[ClassifyExample]) -> dict[str, Any]:
        if self.fixed_classes:
            return {"kind": "label", "classes": list(self.fixed_classes)}
        kind = self.kind or self.find_kind(examples)
        _, names = label_names([e.label for e in examples], self.separator, kind)
        if kind == "number":
            numbers = np.array([_number(example) for example in examples])
            scale = float(numbers.std()) or 1.0
            return {"kind": kind, "mean": float(numbers.mean()), "scale": scale}
        if examples:
            refuse_single(names, "label")
        found: dict[str, Any] = {"kind": kind, "classes": names}
        if kind == "labels" and self.separator is not None:
            found["separator"] = self.separator
        return found

    def labels_fit(self, labels: Mapping[str, Any]) -> bool:
        return super().labels_fit(labels) and (
            not self.fixed_classes or labels["classes"] == list(self.fixed_classes)
        )

    def label_counts(self, examples: Iterable[ClassifyExample]) -> Counter[str]:
        if self.labels["kind"] == "number":
            return Counter()
        return Counter(name for example in examples for name in self._names(example))

    def _names(self, example: ClassifyExample) -> tuple[str, ...]:
        """The labels of an example; those of the held-out data must occur in training."""
        if example.label is None:
            raise InputError(f"{example.where}: there is no label; add one")
        single = self.labels["kind"] == "label"
        names = (str(example.label),) if single else split_labels(example.label, self.separator)
        known = self.labels["classes"]
        if unknown := next((name for name in names if name not in known), None):
            raise InputError(
                f"{example.where}: the label '{unknown}' does not occur in the "
                f"training data; its labels are {', '.join(known[:8])}"
            )
        return names

    def check_labels(self, examples: Sequence[ClassifyExample]) -> None:
        number = self.labels["kind"] == "number"
        for example in examples:
            _ = _number(example) if number else self._names(example)

    def hold_out(
        self, examples: Sequence[ClassifyExample]
    ) -> tuple[list[ClassifyExample], list[ClassifyExample], str]:
        """Labels of the data are held out in proportion; numbers and sets of labels at random."""
        if self.fixed_classes:
            return super().hold_out(examples)
        if self.kind == "label":
            parts = split_held_out(examples, lambda e: str(e.label), seed=self.seed)
            return *parts, "stratified"
        train, held_out = split_held_out(examples, lambda _: "", seed=self.seed)
        if self.kind == "number":
            return train, held_out, "at random"
        # What has a label that no other training example has is learned from.
        known = {name for e in train for name in split_labels(e.label, self.separator)}
        kept: list[ClassifyExample] = []
        for example in held_out:
            names = split_labels(example.label, self.separator)
            (kept if known.issuperset(names) else train).append(example)
            known.update(names)
        return train, kept, "at random"

    # ------------------------------------------------------------------- network

    def fitted(self, examples: Sequence[ClassifyExample]) -> TaskRecipe:
        recipe, few = super().fitted(examples), len(examples) < FEW
        if not self.light:
            return recipe
        sizes: ClassifySizes = recipe.model
        if sizes.bag == "auto":
            # With 8,544 reviews the words' own scores learned them by heart: five points less.
            sizes = dataclasses.replace(sizes, bag="on" if few else "off")
        if sizes.context == "auto":
            # With 8,544 reviews the biLSTM has a point or two more than the window.
            sizes = dataclasses.replace(sizes, context="window" if few else "lstm")
        return dataclasses.replace(recipe, model=sizes)

    def build(self, features: TokenFeatures) -> Network:
        sizes: ClassifySizes = self.recipe.model
        outputs = 1 if self.labels["kind"] == "number" else len(self.labels["classes"])
        lstm, bag = sizes.context == "lstm", sizes.bag == "on"
        return LightNetwork(
            features, sizes.hidden, sizes.dropout, outputs, lstm=lstm, pooled=True, bag=bag
        )

    def _scores(self, examples: Sequence[ClassifyExample]) -> Tensor:
        tokens = self.index.batch([e.tokens for e in examples], [e.sentences for e in examples])
        scores: Tensor = self.network(tokens)
        return scores

    def loss(self, examples: Sequence[ClassifyExample]) -> Tensor:
        scores = self._scores(examples)
        kind, device = self.labels["kind"], scores.device
        if kind == "number":
            values = [_number(example) for example in examples]
            wanted = (torch.tensor(values) - self.labels["mean"]) / self.labels["scale"]
            return nn.functional.mse_loss(scores[:, 0], wanted.float().to(device))
        ids = {name: k for k, name in enumerate(self.labels["classes"])}
        known = [[ids[name] for name in self._names(e)] for e in examples]
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

    def measure(self, examples: Sequence[ClassifyExample], found: Sequence[Classified]) -> Report:
        kind = self.labels["kind"]
        if kind == "number":
            return _measure_numbers(examples, found)
        names: list[str] = self.labels["classes"]
        if kind == "labels":
            sets: Any = [one.label for one in found]
            metrics, rows = set_scores([self._names(example) for example in examples], sets, names)
            return Report(name=self.name, metrics=metrics, tables={"classes": rows})
        pairs = self.pairs(examples, found)
        right, guessed = ([pair[side] for pair in pairs] for side in (0, 1))
        metrics, rows = class_scores(right, guessed, names)
        shown = (
            (one.probabilities.get(b, 0.0), {"text": _start(example)})
            for example, one, (_, b) in zip(examples, found, pairs, strict=True)
        )
        tables = {"classes": rows, **mistake_tables(pairs, shown)}
        return Report(name=self.name, metrics=metrics, tables=tables)

    def pairs(
        self, examples: Sequence[ClassifyExample], found: Sequence[Classified]
    ) -> list[tuple[str, str]]:
        if self.labels["kind"] != "label":
            raise ConfigError("confusions are for one label per text; leave --plot out")
        both = zip(examples, found, strict=True)
        return [(self._names(example)[0], str(one.label)) for example, one in both]

    def baseline(
        self, train: Sequence[ClassifyExample], held_out: Sequence[ClassifyExample]
    ) -> float:
        """TF-IDF of words and pairs of words, with a logistic or ridge regression."""

        def part(name: str) -> Any:
            return require(f"sklearn.{name}", "tasks", "the baseline")

        kind, linear = self.labels["kind"], part("linear_model")
        labels = part("preprocessing").MultiLabelBinarizer(classes=self.labels.get("classes"))
        y: Any
        model = linear.LogisticRegression(C=10.0, max_iter=1000)
        if kind == "number":
            model, y = linear.Ridge(), [_number(e) for e in train]
        elif kind == "label":
            y = [self._names(e)[0] for e in train]
        else:
            model = part("multiclass").OneVsRestClassifier(model)
            y = labels.fit_transform([self._names(e) for e in train])
        vectors = part("feature_extraction.text").TfidfVectorizer(
            preprocessor=lambda tokens: [token.lower() for token in tokens],
            tokenizer=list,
            token_pattern=None,
            ngram_range=(1, 2),
            sublinear_tf=True,
            max_features=200_000,
        )
        model.fit(vectors.fit_transform([example.tokens for example in train]), y)
        guessed = model.predict(vectors.transform([example.tokens for example in held_out]))
        if kind == "labels":
            guessed = labels.inverse_transform(guessed)
        found = [Classified(label) for label in guessed]
        return float(self.measure(held_out, found).metrics[self.metric])

    # ------------------------------------------------------------------- use

    def text_of(self, example: ClassifyExample) -> str:
        return " ".join(example.tokens)


def _start(example: ClassifyExample) -> str:
    words = example.tokens[:16]
    return " ".join([*words, *(["…"] if len(example.tokens) > len(words) else [])])


def _number(example: ClassifyExample) -> float:
    number = as_number(example.label)
    if number is None:
        raise InputError(f"{example.where}: '{example.label}' is not a number")
    return number


def _measure_numbers(examples: Sequence[ClassifyExample], found: Sequence[Classified]) -> Report:
    right = np.array([_number(example) for example in examples])
    guessed = np.array([one.label for one in found], float)
    flat = not (right.std() and guessed.std())
    errors = np.abs(right - guessed)
    metrics = {
        "correlation": 0.0 if flat else 100 * float(np.corrcoef(right, guessed)[0, 1]),
        "mean error": float(errors.mean()),
    }
    rows = [
        {"right": right[k], "predicted": guessed[k], "text": _start(examples[k])}
        for k in np.argsort(-errors)[:10]
    ]
    return Report(name=Classifier.name, metrics=metrics, tables={"largest errors": rows})

"""Textual entailment: ESIM (Chen et al. 2017; supplement A.3).

One encoder reads both sentences; each token is compared with what it attends to in the other
sentence; a second encoder composes the comparisons, which are pooled and classified.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmore.base.json import BelowOne, Count
from elmore.base.messages import shown
from elmore.errors import InputError
from elmore.report import Report
from elmore.tasks.data.columns import split_pairs, unescape
from elmore.tasks.data.labelled import TableRow, table
from elmore.tasks.encoders import (
    BiLstm,
    VariationalDropout,
    masked_max,
    masked_mean,
    masked_softmax,
    start_linear,
)
from elmore.tasks.features import Network, TokenFeatures, Tokens
from elmore.tasks.predictions import mark_spans, paint
from elmore.tasks.scores import class_scores
from elmore.tasks.task import Task
from elmore.text.records import split_columns
from elmore.text.tokenizer import tokenize

# The order is that of the network's outputs: saved models depend on it.
LABELS = ("entailment", "neutral", "contradiction")
_NO_LABEL = "-"


@dataclass(frozen=True)
class NliExample:
    """A pair of sentences."""

    premise: tuple[str, ...]
    hypothesis: tuple[str, ...]
    label: str | None = None


@dataclass(frozen=True, kw_only=True)
class NliSizes:
    """The section `model`."""

    dim: Count  # units of each direction of both biLSTMs, and of the layers between and above
    dropout: BelowOne  # variational, at the input of both biLSTMs; and in the classifier
    attention_dropout: BelowOne  # on the comparisons, before their projection


class Nli(Task[NliExample, str]):
    """Decide whether a hypothesis follows from a premise.

    Examples:
        >>> model = Nli(elmo, seed=0)
        >>> report = model.fit("train.jsonl", dev="dev.jsonl")
        >>> model.predict([("A man sleeps .", "A man is awake .")])
        ['contradiction']
    """

    name = "nli"
    metric = "accuracy"
    sizes = NliSizes
    example = NliExample
    takes = "a pair (premise, hypothesis) of texts or token lists"

    def read(self, path: Path) -> list[NliExample]:
        found = list(read_pairs(path))
        if not found:
            raise InputError("there is no labelled pair; is this SNLI?", file=str(path))
        return found

    def texts(self, example: NliExample) -> Sequence[Sequence[str]]:
        return (example.premise, example.hypothesis)

    def find_labels(self, examples: Sequence[NliExample]) -> dict[str, Any]:
        return {"classes": list(LABELS)}

    def check_labels(self, examples: Sequence[NliExample]) -> None:
        if any(example.label not in LABELS for example in examples):
            raise InputError(f"an example has no label; use one of {', '.join(LABELS)}")

    def build(self, features: TokenFeatures) -> Network:
        return _Esim(features, self.recipe.model, len(LABELS))

    def loss(self, examples: Sequence[NliExample]) -> Tensor:
        scores = self._scores(examples)
        labels = [LABELS.index(str(example.label)) for example in examples]
        return nn.functional.cross_entropy(scores, torch.tensor(labels, device=scores.device))

    def guess(self, examples: Sequence[NliExample]) -> list[str]:
        return [LABELS[int(label)] for label in self._scores(examples).argmax(1)]

    def _scores(self, examples: Sequence[NliExample]) -> Tensor:
        premises = self.index.batch([example.premise for example in examples])
        hypotheses = self.index.batch([example.hypothesis for example in examples])
        scores: Tensor = self.network(premises, hypotheses)
        return scores

    def measure(self, examples: Sequence[NliExample], found: Sequence[str]) -> Report:
        metrics, rows = class_scores([str(e.label) for e in examples], found, LABELS)
        return Report(name=self.name, metrics=metrics, tables={"classes": rows})

    def parse(self, item: Sequence[Any]) -> NliExample:
        if isinstance(item, str):
            raise TypeError(item)
        premise, hypothesis = map(self.split, item)
        return NliExample(premise, hypothesis)

    def items(self, lines: Iterable[tuple[int, str]], file: str) -> Iterator[Any]:
        return split_pairs(lines, file, "premise TAB hypothesis")

    def show(self, example: NliExample, found: str, *, colour: bool) -> str:
        which = {"entailment": 1, "neutral": 4, "contradiction": 5}[found]
        pair = " => ".join(
            mark_spans(text, (), colour=False) for text in (example.premise, example.hypothesis)
        )
        return f"{paint(f'{found:>13}', which, colour=colour)}  {pair}"

    def to_json(self, example: NliExample, found: str) -> dict[str, Any]:
        return {
            "premise": list(example.premise),
            "hypothesis": list(example.hypothesis),
            "label": found,
        }


def read_pairs(path: Path) -> Iterator[NliExample]:
    """Read SNLI's JSON lines, or tab-separated columns with a header.

    Tokens come from the bracketed parse where a line has one, else from our tokenizer.

    Raises:
        InputError: a line is neither, or has an unknown label.
    """
    for row in table(path):
        label = row.text("gold_label")
        if label == _NO_LABEL:
            continue  # the annotators disagreed
        if label not in LABELS:
            raise row.error(
                f"the label '{shown(label, 30)}' is not one of {', '.join(LABELS)}; correct it"
            )
        yield NliExample(_tokens(row, "sentence1"), _tokens(row, "sentence2"), label)


def _tokens(row: TableRow, name: str) -> tuple[str, ...]:
    text, parse = row.text(name, empty=True), row.cells.get(f"{name}_binary_parse")
    if isinstance(parse, str) and parse:
        # Tokenized as the treebanks are, which word vectors and biLMs know best.
        return tuple(unescape(word) for word in split_columns(re.sub(r"[()]", " ", parse)))
    return tokenize(text).tokens


class _Esim(Network):
    """Encode, attend, compare, compose, pool, classify."""

    def __init__(self, features: TokenFeatures, sizes: NliSizes, n_classes: int) -> None:
        super().__init__(features)
        dim = sizes.dim
        self.dropout = VariationalDropout(sizes.dropout)
        self.encoder = BiLstm(features.dim, dim)
        width = 2 * dim + features.output_dim
        self.projection = nn.Sequential(
            nn.Dropout(sizes.attention_dropout), nn.Linear(4 * width, dim), nn.ReLU()
        )
        self.composer = BiLstm(dim, dim)
        self.output = nn.Sequential(
            nn.Dropout(sizes.dropout),
            nn.Linear(8 * dim, dim),
            nn.ReLU(),
            nn.Dropout(sizes.dropout),
            nn.Linear(dim, n_classes),
        )
        start_linear(self)

    def _encode(self, tokens: Tokens) -> Tensor:
        x, elmo = self.features(tokens)
        return torch.cat([self.encoder(self.dropout(x), tokens.lengths), elmo], dim=2)

    def _compose(self, own: Tensor, other: Tensor, tokens: Tokens) -> Tensor:
        compared = torch.cat([own, other, own - other, own * other], dim=2)
        composed = self.composer(self.dropout(self.projection(compared)), tokens.lengths)
        return torch.cat(
            [masked_mean(composed, tokens.mask), masked_max(composed, tokens.mask)], dim=1
        )

    def forward(self, premises: Tokens, hypotheses: Tokens) -> Tensor:
        """Score the labels, (batch, classes)."""
        a, b = self._encode(premises), self._encode(hypotheses)
        scores = a @ b.transpose(1, 2)  # (batch, premise, hypothesis)
        for_a = masked_softmax(scores, hypotheses.mask[:, None, :], dim=2) @ b
        # The same scores, read the other way.
        for_b = masked_softmax(scores, premises.mask[:, :, None], dim=1).transpose(1, 2) @ a
        pooled = torch.cat(
            [self._compose(a, for_a, premises), self._compose(b, for_b, hypotheses)], dim=1
        )
        result: Tensor = self.output(pooled)
        return result

"""Textual entailment: ESIM (Chen et al. 2017; supplement A.3).

One encoder reads both sentences; each token is compared with what it attends to in the other
sentence; a second encoder composes the comparisons, which are pooled and classified.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from elmore.base.json import BelowOne, Count
from elmore.base.messages import shown
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
from elmore.tasks.own.classify import Classifier, ClassifyExample
from elmore.tasks.predictions import Classified
from elmore.text.records import split_columns
from elmore.text.tokenizer import tokenize


@dataclass(frozen=True, kw_only=True)
class NliSizes:
    """The section `model`."""

    dim: Count  # units of each direction of both biLSTMs, and of the layers between and above
    dropout: BelowOne  # variational, at the input of both biLSTMs; and in the classifier
    attention_dropout: BelowOne  # on the comparisons, before their projection


class Nli(Classifier):
    """Decide whether a hypothesis follows from a premise.

    The two `sentences` of an example are the premise and the hypothesis.

    Examples:
        >>> model = Nli(elmo, seed=0)
        >>> report = model.fit("train.jsonl", dev="dev.jsonl")
        >>> model.predict([("A man sleeps .", "A man is awake .")])[0].label
        'contradiction'
    """

    name = "nli"
    sizes = NliSizes
    light = False
    reads = "SNLI"
    baseline_name = ""  # the paper has others
    fixed_classes = ("entailment", "neutral", "contradiction")
    takes = "a pair (premise, hypothesis) of texts or token lists"

    def read(self, data: Any) -> Iterator[ClassifyExample]:
        """Read SNLI's JSON lines, or columns with the same names.

        Tokens come from the bracketed parse where a line has one, else from our tokenizer.
        """
        for row in table(data):
            label = row.text("gold_label")
            if label == "-":
                continue  # the annotators disagreed
            if label not in self.fixed_classes:
                names = ", ".join(self.fixed_classes)
                raise row.error(f"the label '{shown(label, 30)}' is not one of {names}; correct it")
            pair = _tokens(row, "sentence1"), _tokens(row, "sentence2")
            yield ClassifyExample(pair, label, row.where)

    def parse(self, item: Any) -> ClassifyExample:
        if isinstance(item, str):
            raise TypeError(item)
        premise, hypothesis = map(self.split, item)
        return ClassifyExample((premise, hypothesis))

    def length(self, example: ClassifyExample) -> int:
        return max(map(len, example.sentences))

    def build(self, features: TokenFeatures) -> Network:
        return _Esim(features, self.recipe.model, len(self.fixed_classes))

    def _scores(self, examples: Sequence[ClassifyExample]) -> Tensor:
        pairs = [example.sentences for example in examples]
        premises, hypotheses = (self.index.batch([pair[k] for pair in pairs]) for k in (0, 1))
        scores: Tensor = self.network(premises, hypotheses)
        return scores

    def items(self, lines: Iterable[tuple[int, str]], file: str) -> Iterator[Any]:
        return split_pairs(lines, file, "premise TAB hypothesis")

    def text_of(self, example: ClassifyExample) -> str:
        return " => ".join(map(" ".join, example.sentences))

    def to_json(self, example: ClassifyExample, found: Classified) -> dict[str, Any]:
        premise, hypothesis = map(list, example.sentences)
        return {"premise": premise, "hypothesis": hypothesis, **found.to_json()}


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

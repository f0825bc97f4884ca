"""Named entities: character CNN, biLSTM and CRF (paper §4 and supplement A.7).

Tags are BIOUL inside; files may be IOB1, IOB2 or BIOES. Decoding obeys the scheme, but the
training loss runs over all paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmore.base.json import BelowOne
from elmore.tasks.data.labelled import read_columns
from elmore.tasks.data.tags import (
    Span,
    spans_from_tags,
    spans_to_json,
    tag_names,
    tags_fit,
    tags_from_spans,
)
from elmore.tasks.layers.crf import Crf, tag_transitions
from elmore.tasks.layers.encoders import BiLstmStack
from elmore.tasks.layers.features import Network, TokenFeatures, Tokens
from elmore.tasks.predictions import mark_spans
from elmore.tasks.recipe import LayerSizes
from elmore.tasks.scores import Measured, span_scores
from elmore.tasks.task import Task

__all__ = ["Ner", "NerExample", "NerSizes"]

Entities = tuple[Span, ...]


@dataclass(frozen=True)
class NerExample:
    """A sentence and its entities."""

    tokens: tuple[str, ...]
    entities: Entities = ()


@dataclass(frozen=True, kw_only=True)
class NerSizes:
    """The section `model`.

    Attributes:
        lstm: units of each direction, layer by layer.
        dropout: variational, at the input of each layer.
        output_dropout: on what the CRF's scores are made of.
    """

    lstm: LayerSizes
    dropout: BelowOne
    output_dropout: BelowOne


class Ner(Task[NerExample, Entities]):
    """Find names in text and what they are names of.

    Examples:
        >>> tagger = Ner(elmo, seed=0)
        >>> report = tagger.fit("train.conll", dev="dev.conll")
        >>> tagger.predict(["Ada lives in Rome ."])
        [(Span(label='PER', first=0, last=0), Span(label='LOC', first=3, last=3))]
    """

    name = "ner"
    metric = "f1"
    sizes = NerSizes
    example = NerExample
    needs = ("seqeval.metrics",)

    def read(self, path: Path) -> list[NerExample]:
        """Read CoNLL columns: word first, tag last."""
        found = read_columns(path, spans=True)
        return [NerExample(sentence.tokens, spans_from_tags(sentence.tags)) for sentence in found]

    def find_labels(self, examples: Sequence[NerExample]) -> dict[str, Any]:
        labels = {entity.label for example in examples for entity in example.entities}
        return {"tags": tag_names(labels, "BIOUL")}

    def doubts(self, examples: Sequence[NerExample]) -> list[str]:
        if any(example.entities for example in examples):
            return []
        return ["no training sentence has an entity; are the tags in the last column?"]

    def labels_fit(self, labels: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> bool:
        return tags_fit(labels, shapes, "BIOUL")

    def build(self, features: TokenFeatures) -> Network:
        return _NerNetwork(features, self.recipe.model, self.labels["tags"])

    def loss(self, examples: Sequence[NerExample]) -> Tensor:
        """The mean negative log-likelihood of a sentence's tags."""
        tokens = self.tokens([example.tokens for example in examples])
        ids = {tag: k for k, tag in enumerate(self.labels["tags"])}
        tags = torch.zeros_like(tokens.words)
        for row, example in enumerate(examples):
            names = tags_from_spans(example.entities, len(example.tokens), "BIOUL")
            tags[row, : len(names)] = torch.tensor([ids[name] for name in names], dtype=torch.long)
        return self.network(tokens, tags)  # type: ignore[no-any-return]  # torch leaves it so

    def guess(self, examples: Sequence[NerExample]) -> list[Entities]:
        tokens = self.tokens([example.tokens for example in examples])
        names = self.labels["tags"]
        paths = self.network.decode(tokens)  # type: ignore[operator]  # of _NerNetwork
        return [spans_from_tags([names[k] for k in path]) for path in paths]

    def measure(self, examples: Sequence[NerExample], found: Sequence[Entities]) -> Measured:
        metrics, rows = span_scores(
            [example.entities for example in examples],
            found,
            [len(example.tokens) for example in examples],
        )
        return Measured(metrics, {"entities": rows})

    def show(self, example: NerExample, found: Entities, *, colour: bool) -> str:
        return mark_spans(example.tokens, found, colour=colour)

    def to_json(self, example: NerExample, found: Entities) -> dict[str, Any]:
        return {
            "tokens": list(example.tokens),
            "entities": spans_to_json(found, example.tokens),
        }


class _NerNetwork(Network):
    """Features, biLSTM, a score for each tag, CRF."""

    def __init__(self, features: TokenFeatures, sizes: NerSizes, tags: Sequence[str]) -> None:
        super().__init__(features)
        self.encoder = BiLstmStack(features.dim, sizes.lstm, sizes.dropout)
        self.dropout = nn.Dropout(sizes.output_dropout)
        self.output = nn.Linear(self.encoder.dim + features.output_dim, len(tags))
        self.crf = Crf(tag_transitions(tags, "BIOUL"))

    def scores(self, tokens: Tokens) -> Tensor:
        """Score tags, (batch, time, tags)."""
        x, elmo = self.features(tokens)
        hidden = self.dropout(self.encoder(x, tokens.lengths))
        return self.output(torch.cat([hidden, elmo], dim=2))  # type: ignore[no-any-return]

    def forward(self, tokens: Tokens, tags: Tensor) -> Tensor:
        """The mean loss, ()."""
        return -self.crf(self.scores(tokens), tags, tokens.lengths).mean()  # type: ignore[no-any-return]

    def decode(self, tokens: Tokens) -> list[list[int]]:
        return self.crf.decode(self.scores(tokens), tokens.lengths)

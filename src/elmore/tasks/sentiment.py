"""Sentiment: the biattentive classification network (McCann et al. 2017; supplement A.8).

With one text both sides of the biattention are the same, which makes it a self-attention. The
output is two ReLU layers with dropout, as in the paper, or McCann's maxout layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from elmore.errors import InputError
from elmore.tasks.layers.attention import (
    SelfAttentivePooling,
    masked_max,
    masked_mean,
    masked_softmax,
)
from elmore.tasks.layers.encoders import BiLstm
from elmore.tasks.layers.features import TokenFeatures, Tokens
from elmore.tasks.metrics.classes import class_scores
from elmore.tasks.parts import Measured, Network
from elmore.tasks.readers.sst import read_trees
from elmore.tasks.recipe import within
from elmore.tasks.supervised import Task
from elmore.tasks.terminal import mark_spans, paint

__all__ = ["Sentiment", "SentimentExample", "SentimentSizes"]

_NAMES = ("very negative", "negative", "neutral", "positive", "very positive")


@dataclass(frozen=True)
class SentimentExample:
    """A sentence or phrase; `phrases` are its labelled parts, which training may use too."""

    tokens: tuple[str, ...]
    label: int = 2
    phrases: tuple[tuple[tuple[str, ...], int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class SentimentSizes:
    """The section `model`.

    Attributes:
        dim: of the ReLU layer on each token, and units of each direction of both biLSTMs.
        embedding_dropout: on the input.
        dropout: on the ReLU layer on each token.
        pooled_dropout: on the pooled vectors.
        hidden: widths of the layers of the output; the last one is the classes' own.
        output: "relu" layers, or "maxout" of four.
        output_dropout: after each of those layers.
        phrases_from: train on labelled phrases of so many tokens or more, too; 0 for whole
            sentences only.
    """

    dim: int
    embedding_dropout: float
    dropout: float
    pooled_dropout: float
    hidden: tuple[int, ...]
    output: Literal["relu", "maxout"]
    output_dropout: float
    phrases_from: int = within(0)


class Sentiment(Task[SentimentExample, int]):
    """Tell how a sentence feels about its subject, from 0 (very negative) to 4 (very positive).

    Examples:
        >>> model = Sentiment(elmo, seed=0)
        >>> report = model.fit("train.txt", dev="dev.txt")
        >>> model.predict(["A joy from start to end ."])
        [4]
    """

    name = "sentiment"
    metric = "accuracy"
    sizes = SentimentSizes
    example = SentimentExample

    def read(self, path: Path) -> list[SentimentExample]:
        """Read SST trees."""
        found = [
            SentimentExample(*phrases[0], phrases=tuple(phrases[1:]))
            for phrases in read_trees(path)
        ]
        if not found:
            raise InputError("there is no tree; is this a file of SST?", file=str(path))
        return found

    def for_training(self, examples: list[SentimentExample]) -> list[SentimentExample]:
        """Add phrases, each text once: sentences are kept whatever their length."""
        shortest = self.recipe.model.phrases_from
        if not shortest:
            return super().for_training(examples)
        phrases = {
            (tokens, label): None
            for example in examples
            for tokens, label in example.phrases
            if len(tokens) >= shortest
        }
        whole = [SentimentExample(example.tokens, example.label) for example in examples]
        return super().for_training([*whole, *(SentimentExample(*phrase) for phrase in phrases)])

    def texts(self, example: SentimentExample) -> Sequence[Sequence[str]]:
        """Give the one sentence."""
        return (example.tokens,)

    def find_labels(self, examples: Sequence[SentimentExample]) -> dict[str, Any]:
        """There are always five."""
        return {"classes": list(_NAMES)}

    def build(self, features: TokenFeatures) -> Network:
        """Make the network."""
        return _Bcn(features, self.recipe.model, len(_NAMES))

    def loss(self, examples: Sequence[SentimentExample]) -> Tensor:
        """Give the mean cross-entropy."""
        scores = self._scores(examples)
        labels = torch.tensor([example.label for example in examples], device=scores.device)
        return nn.functional.cross_entropy(scores, labels)

    def guess(self, examples: Sequence[SentimentExample]) -> list[int]:
        """Choose the class of each."""
        return [int(label) for label in self._scores(examples).argmax(1)]

    def _scores(self, examples: Sequence[SentimentExample]) -> Tensor:
        scores: Tensor = self.network(self.tokens([example.tokens for example in examples]))
        return scores

    def measure(self, examples: Sequence[SentimentExample], found: Sequence[int]) -> Measured:
        """Score whole sentences."""
        metrics, rows = class_scores(
            [_NAMES[example.label] for example in examples],
            [_NAMES[label] for label in found],
            _NAMES,
        )
        return Measured(metrics, {"classes": rows})

    def parse(self, item: str | Sequence[str]) -> SentimentExample:
        """Take a sentence: text, or its tokens."""
        return SentimentExample(self.tokenize(item) if isinstance(item, str) else tuple(item))

    def show(self, example: SentimentExample, found: int, *, colour: bool) -> str:
        """Put the class in front of the sentence."""
        colours = (5, 5, 4, 1, 1)
        name = paint(f"{_NAMES[found]:>13}", colours[found], colour=colour)
        return f"{name}  {mark_spans(example.tokens, (), colour=False)}"

    def to_json(self, example: SentimentExample, found: int) -> dict[str, Any]:
        """Give tokens and class."""
        return {"tokens": list(example.tokens), "label": found, "name": _NAMES[found]}


class _Bcn(Network):
    """Token layer, biLSTM, self-attention, biLSTM, four poolings, feed-forward layers."""

    def __init__(self, features: TokenFeatures, sizes: SentimentSizes, n_classes: int) -> None:
        super().__init__(features)
        dim = sizes.dim
        self.embedding_dropout = nn.Dropout(sizes.embedding_dropout)
        self.token = nn.Sequential(
            nn.Linear(features.dim, dim), nn.ReLU(), nn.Dropout(sizes.dropout)
        )
        self.encoder = BiLstm(dim, dim)
        width = 2 * dim + features.output_dim
        self.integrator = BiLstm(3 * width, dim)
        self.pooling = SelfAttentivePooling(2 * dim)
        layers: list[nn.Module] = [nn.Dropout(sizes.pooled_dropout)]
        before = 8 * dim
        for hidden in sizes.hidden:
            layers.append(
                nn.Sequential(nn.Linear(before, hidden), nn.ReLU())
                if sizes.output == "relu"
                else _Maxout(before, hidden)
            )
            layers.append(nn.Dropout(sizes.output_dropout))
            before = hidden
        layers.append(
            nn.Linear(before, n_classes) if sizes.output == "relu" else _Maxout(before, n_classes)
        )
        self.output = nn.Sequential(*layers)

    def forward(self, tokens: Tokens) -> Tensor:
        """Score the classes, (batch, classes)."""
        x, elmo = self.features(tokens)
        mask = tokens.mask
        encoded = self.encoder(self.token(self.embedding_dropout(x)), tokens.lengths)
        encoded = torch.cat([encoded, elmo], dim=2)
        # A = softmax over the real columns of X X^T; the diagonal stays.
        weights = masked_softmax(encoded @ encoded.transpose(1, 2), mask[:, None, :])
        context = weights @ encoded
        joined = torch.cat([encoded, encoded - context, encoded * context], dim=2)
        integrated = self.integrator(joined, tokens.lengths)
        pooled = torch.cat(
            [
                masked_max(integrated, mask),
                -masked_max(-integrated, mask),
                masked_mean(integrated, mask),
                self.pooling(integrated, mask),
            ],
            dim=1,
        )
        scores: Tensor = self.output(pooled)
        return scores


class _Maxout(nn.Module):
    """The largest of four linear layers (Goodfellow et al. 2013)."""

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_dim, 4 * dim)

    def forward(self, x: Tensor) -> Tensor:
        """Give (batch, dim)."""
        pieces: Tensor = self.linear(x).unflatten(1, (-1, 4))
        return pieces.amax(2)

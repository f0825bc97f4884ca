"""Sentiment: the biattentive classification network (McCann et al. 2017; supplement A.8).

With one text both sides of the biattention are the same, which makes it a self-attention. The
output is two ReLU layers with dropout, as in the paper, or McCann's maxout layers.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from elmore.base.json import BelowOne, Count, Whole
from elmore.base.messages import shown
from elmore.errors import InputError
from elmore.tasks.data.columns import unescape
from elmore.tasks.encoders import (
    BiLstm,
    SelfAttentivePooling,
    masked_max,
    masked_mean,
    masked_softmax,
)
from elmore.tasks.features import Network, TokenFeatures, Tokens
from elmore.tasks.own.classify import Classifier, ClassifyExample
from elmore.tasks.recipe import LayerSizes
from elmore.text.reading import numbered_lines

# Tokens of a phrase and its label.
LabelledPhrase = tuple[tuple[str, ...], int]
# Not \s, which takes the U+00A0 of "8 1/2" for a space.
_PART = re.compile(r"\(|\)|[^() \t\r]+")


@dataclass(frozen=True)
class SentimentExample(ClassifyExample):
    """A sentence or phrase, and its labelled phrases, which training may use too."""

    phrases: tuple[LabelledPhrase, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SentimentSizes:
    """The section `model`."""

    dim: Count  # of the ReLU layer on each token, and units of each direction of both biLSTMs
    embedding_dropout: BelowOne  # on the input
    dropout: BelowOne  # on the ReLU layer on each token
    pooled_dropout: BelowOne  # on the pooled vectors
    hidden: LayerSizes  # widths of the layers of the output; the last one is the classes' own
    output: Literal["relu", "maxout"]  # "relu" layers, or "maxout" of four
    output_dropout: BelowOne  # after each of those layers
    # also train on labelled phrases of so many tokens or more; 0 for sentences only
    phrases_from: Whole


class Sentiment(Classifier):
    """Rate how a sentence feels about its subject, from very negative to very positive.

    Examples:
        >>> model = Sentiment(elmo, seed=0)
        >>> report = model.fit("train.txt", dev="dev.txt")
        >>> model.predict(["A joy from start to end ."])[0].label
        'very positive'
    """

    name = "sentiment"
    sizes = SentimentSizes
    example = SentimentExample
    light = False
    reads = "the Stanford Sentiment Treebank"
    baseline_name = ""  # the paper has others
    fixed_classes = ("very negative", "negative", "neutral", "positive", "very positive")  # 0 to 4

    def read(self, data: Any) -> Iterable[ClassifyExample]:
        if not isinstance(data, Path):
            return super().read(data)
        return (
            dataclasses.replace(self._example(phrases[0]), phrases=tuple(phrases[1:]))
            for phrases in read_trees(data)
        )

    def _example(self, phrase: LabelledPhrase) -> SentimentExample:
        tokens, label = phrase
        return SentimentExample((tokens,), self.fixed_classes[label])

    def parse(self, item: Any) -> SentimentExample:
        return SentimentExample((self.split(item),))

    def for_training(self, examples: list[ClassifyExample]) -> list[ClassifyExample]:
        """Add phrases, each text once; sentences stay, however short they are."""
        if shortest := self.recipe.model.phrases_from:
            known = [p for e in examples if isinstance(e, SentimentExample) for p in e.phrases]
            phrases = dict.fromkeys(phrase for phrase in known if len(phrase[0]) >= shortest)
            sentences = [SentimentExample(e.sentences, e.label, e.where) for e in examples]
            examples = [*sentences, *map(self._example, phrases)]
        return super().for_training(examples)

    def build(self, features: TokenFeatures) -> Network:
        return _Bcn(features, self.recipe.model, len(self.fixed_classes))


def read_trees(path: Path) -> Iterator[list[LabelledPhrase]]:
    """Read the Stanford Sentiment Treebank: one tree per line, a label from 0 to 4 at every node.

    Yields:
        all labelled phrases of a sentence; the sentence itself comes first.

    Raises:
        InputError: a line is not a tree.
    """
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        try:
            yield _phrases(line)
        except ValueError as error:
            problem = f"{error}; expected one tree such as (3 (2 It) (4 works))"
            raise InputError(problem, file=str(path), line=number) from None


def _phrases(line: str) -> list[LabelledPhrase]:
    """Walk through a tree without recursion: brackets may nest as deep as they like."""
    parts = iter(_PART.findall(line))
    tokens: list[str] = []
    open_nodes: list[tuple[int, int]] = []  # first token, and place in the result
    result: list[LabelledPhrase] = []
    for part in parts:
        if part == "(":
            label = next(parts, "")
            if label not in ("0", "1", "2", "3", "4"):
                raise ValueError(f"the label '{shown(label, 20)}' is not one of 0 to 4")
            if result and not open_nodes:
                raise ValueError("there is a second tree on the line")
            open_nodes.append((len(tokens), len(result)))
            result.append(((), int(label)))  # its tokens are known when it closes
        elif not open_nodes:
            raise ValueError(f"'{shown(part, 20)}' is outside of the brackets")
        elif part == ")":
            first, place = open_nodes.pop()
            if first == len(tokens):
                raise ValueError("a node has no word")
            result[place] = (tuple(tokens[first:]), result[place][1])
        else:
            tokens.append(unescape(part))
    if open_nodes or not result:
        raise ValueError("a bracket does not close" if open_nodes else "there is no bracket")
    return result


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
                -masked_max(-integrated, mask),  # the minimum
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
        return self.linear(x).unflatten(1, (-1, 4)).amax(2)  # type: ignore[no-any-return]

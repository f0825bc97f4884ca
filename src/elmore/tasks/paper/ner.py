"""Named entities: character CNN, biLSTM and CRF (paper §4 and supplement A.7).

It is a tagger of spans with the network and the recipes of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmore.base.json import BelowOne
from elmore.tasks.data.labelled import TagExample
from elmore.tasks.encoders import BiLstmStack, Crf
from elmore.tasks.features import Network, TokenFeatures, Tokens
from elmore.tasks.own.tag import Tagger
from elmore.tasks.recipe import LayerSizes


@dataclass(frozen=True, kw_only=True)
class NerSizes:
    """The section `model`."""

    lstm: LayerSizes  # units of each direction, layer by layer
    dropout: BelowOne  # variational, at the input of each layer
    output_dropout: BelowOne  # on what the CRF's scores are made of


class Ner(Tagger):
    """Find names in text and what they are names of.

    Examples:
        >>> tagger = Ner(elmo, seed=0)
        >>> report = tagger.fit("train.conll", dev="dev.conll")
        >>> tagger.predict(["Ada lives in Rome ."])[0].spans
        (Span(label='PER', first=0, last=0), Span(label='LOC', first=3, last=3))
    """

    name = "ner"
    metric = "f1"
    sizes = NerSizes
    light = False

    def find_kind(self, examples: Sequence[TagExample]) -> str:
        return "spans"

    def build(self, features: TokenFeatures) -> Network:
        return _NerNetwork(features, self.recipe.model, len(self.labels["tags"]))


class _NerNetwork(Network):
    """Features, biLSTM, a score for each tag, CRF."""

    def __init__(self, features: TokenFeatures, sizes: NerSizes, n_tags: int) -> None:
        super().__init__(features)
        self.encoder = BiLstmStack(features.dim, sizes.lstm, sizes.dropout)
        self.dropout = nn.Dropout(sizes.output_dropout)
        self.output = nn.Linear(self.encoder.dim + features.output_dim, n_tags)
        self.crf = Crf(n_tags)

    def forward(self, tokens: Tokens) -> Tensor:
        """Score tags, (batch, time, tags)."""
        x, elmo = self.features(tokens)
        hidden = self.dropout(self.encoder(x, tokens.lengths))
        scores: Tensor = self.output(torch.cat([hidden, elmo], dim=2))
        return scores

"""The light networks of `tag` and `classify`: small enough that `tasks/light.py` repeats them.

Each token is projected, sees its left and right neighbour, and is scored; a text is pooled first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmore.tasks.layers.attention import SelfAttentivePooling, masked_max, masked_mean
from elmore.tasks.layers.features import TokenFeatures, Tokens
from elmore.tasks.parts import Network

__all__ = ["TextNetwork", "WindowNetwork"]

# The biLM's numbers are small (their deviation is 0.2 to 0.35); this brings them to about 1.
SCALE = 4.0


class WindowNetwork(Network):
    """Features, a ReLU layer on each token, one on windows of three, and scores.

    Args:
        features: of a token.
        hidden: size of both layers.
        dropout: before each layer.
        outputs: scores of a token; of a text in `TextNetwork`.
        pooled: numbers that the output layer reads; `hidden` by default.
    """

    def __init__(
        self,
        features: TokenFeatures,
        hidden: int,
        dropout: float,
        outputs: int,
        *,
        pooled: int | None = None,
    ) -> None:
        super().__init__(features)
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(features.dim, hidden)
        self.window = nn.Linear(3 * hidden, hidden)
        self.output = nn.Linear(hidden if pooled is None else pooled, outputs)

    def hidden(self, x: Tensor, mask: Tensor) -> Tensor:
        """Read features, (batch, time, dim), to (batch, time, hidden); zeros at padding."""
        real = mask[:, :, None]
        x = torch.relu(self.project(self.dropout(SCALE * x))) * real
        x = nn.functional.pad(self.dropout(x), (0, 0, 1, 1))
        wide = torch.cat([x[:, :-2], x[:, 1:-1], x[:, 2:]], dim=2)
        return torch.relu(self.window(wide)) * real

    def forward(self, tokens: Tokens) -> Tensor:
        """Score tokens, (batch, time, outputs)."""
        x, _ = self.features(tokens)
        scores: Tensor = self.output(self.dropout(self.hidden(x, tokens.mask)))
        return scores


class TextNetwork(WindowNetwork):
    """The same, with the maximum, mean and a learned average over tokens before the scores.

    The word vectors, if there are any, also go to the scores directly, as a bag of words: with
    little data single words say more than their order.
    """

    def __init__(self, features: TokenFeatures, hidden: int, dropout: float, outputs: int) -> None:
        pooled = 3 * hidden + features.own_dim
        super().__init__(features, hidden, dropout, outputs, pooled=pooled)
        self.pooling = SelfAttentivePooling(hidden)

    def forward(self, tokens: Tokens) -> Tensor:
        """Score texts, (batch, outputs)."""
        features, _ = self.features(tokens)
        mask = tokens.mask
        x = self.hidden(features, mask)
        root = tokens.lengths.clamp(min=1).to(x.dtype).sqrt()[:, None]
        bag = SCALE * features[:, :, : self.features.own_dim].sum(1) / root
        parts = [masked_max(x, mask), masked_mean(x, mask), self.pooling(x, mask), bag]
        scores: Tensor = self.output(self.dropout(torch.cat(parts, 1)))
        return scores

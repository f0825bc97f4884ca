"""The light networks of `tag` and `classify`: small enough that `tasks/own/light.py` repeats them.

Each token is projected, sees its left and right neighbour or, by a biLSTM, all of its sentence, and
is scored; a text is pooled first, and its words may have scores of their own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmore.tasks.layers.attention import SelfAttentivePooling, masked_max, masked_mean
from elmore.tasks.layers.encoders import BiLstmStack, VariationalDropout
from elmore.tasks.layers.features import Network, TokenFeatures, Tokens

__all__ = ["TextNetwork", "WindowNetwork"]

# The biLM's numbers are small (their deviation is 0.2 to 0.35); this brings them to about 1.
SCALE = 4.0
# Scores of words start at 0 and learn at the rate of the other weights, which is slow for them.
WORD_GAIN = 16.0


class WindowNetwork(Network):
    """Features, a ReLU layer on each token, one on windows of three or a biLSTM, and scores.

    Args:
        features: of a token.
        hidden: size of both layers, of each direction in a biLSTM.
        dropout: before each layer; with a biLSTM on the features, one mask per sentence, and before
            the scores.
        outputs: scores of a token; of a text in `TextNetwork`.
        lstm: whether the second layer is a biLSTM.
        pooled: vectors of a token's size that the output layer reads.
    """

    def __init__(
        self,
        features: TokenFeatures,
        hidden: int,
        dropout: float,
        outputs: int,
        *,
        lstm: bool = False,
        pooled: int = 1,
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
        self.read_dim = 2 * hidden if lstm else hidden
        self.output = nn.Linear(pooled * self.read_dim, outputs)

    def hidden(self, tokens: Tokens) -> Tensor:
        """Read tokens, (batch, time, hidden), twice as wide by a biLSTM; zeros at padding."""
        x, _ = self.features(tokens)
        own, real = self.features.own_dim, tokens.mask[:, :, None]
        x = torch.cat([x[:, :, :own], SCALE * x[:, :, own:]], dim=2)
        if hasattr(self, "encoder"):
            x = torch.relu(self.project(self.input_dropout(x))) * real
            read: Tensor = self.encoder(x, tokens.lengths)
            return read
        x = torch.relu(self.project(self.dropout(x))) * real
        x = nn.functional.pad(self.dropout(x), (0, 0, 1, 1))
        wide = torch.cat([x[:, :-2], x[:, 1:-1], x[:, 2:]], dim=2)
        return torch.relu(self.window(wide)) * real

    def forward(self, tokens: Tokens) -> Tensor:
        """Score tokens, (batch, time, outputs)."""
        scores: Tensor = self.output(self.dropout(self.hidden(tokens)))
        return scores


class TextNetwork(WindowNetwork):
    """The same, with the maximum, mean and a learned average over tokens before the scores.

    Args:
        features: of a token.
        hidden: size of both layers.
        dropout: before each layer.
        outputs: scores of a text.
        lstm: whether the second layer is a biLSTM.
        bag: whether each training word adds scores of its own, wherever it stands. What the biLM
            says of rare words is vague, so small data gains: with 1,000 reviews two points.
    """

    def __init__(
        self,
        features: TokenFeatures,
        hidden: int,
        dropout: float,
        outputs: int,
        *,
        lstm: bool = False,
        bag: bool = False,
    ) -> None:
        super().__init__(features, hidden, dropout, outputs, lstm=lstm, pooled=3)
        self.pooling = SelfAttentivePooling(self.read_dim)
        if bag and features.words is not None and features.words.n_trained:
            # As the rows of the word table; 0 and 1, padding and unknown words, stay at 0.
            self.word_scores = nn.Parameter(torch.zeros(features.words.n_trained + 2, outputs))

    def forward(self, tokens: Tokens) -> Tensor:
        """Score texts, (batch, outputs)."""
        x, mask = self.hidden(tokens), tokens.mask
        pooled = torch.cat([masked_max(x, mask), masked_mean(x, mask), self.pooling(x, mask)], 1)
        scores: Tensor = self.output(self.dropout(pooled))
        if not hasattr(self, "word_scores"):
            return scores
        rows = tokens.words
        known = (rows > 1) & (rows < len(self.word_scores))
        total = nn.functional.embedding(rows * known, self.word_scores, padding_idx=0).sum(1)
        # Divided by the root of the length, as the vector of a text has length 1 in TF-IDF.
        return scores + WORD_GAIN * total / tokens.lengths[:, None].clamp(min=1).sqrt()

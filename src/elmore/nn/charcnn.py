"""The token layer: a vector for each distinct word, whatever its context."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmore.config import BiLmConfig
from elmore.nn.convolution import convolve
from elmore.nn.highway import Highway

__all__ = ["TokenEncoder"]


class TokenEncoder(nn.Module):
    """Words to vectors by characters, by a word table, or by both side by side.

    It is meant to see each distinct word once; `BiLm` puts the vectors in their places.
    """

    def __init__(self, config: BiLmConfig) -> None:
        super().__init__()
        tokens = config.tokens
        self.config = tokens
        if tokens.n_words:
            self.words = nn.Parameter(torch.zeros(tokens.n_words, tokens.word_dim))
        if tokens.n_characters:
            self.characters = nn.Parameter(torch.zeros(tokens.n_characters, tokens.char_dim))
            self.convolutions = nn.ModuleList(
                _Affine(count, tokens.char_dim, width) for width, count in tokens.filters
            )
            self.highways = nn.ModuleList(
                Highway(tokens.n_filters) for _ in range(tokens.n_highway)
            )
        self.projection = (
            _Affine(config.lstm.projection_dim, tokens.n_features) if tokens.projected else None
        )

    def forward(self, words: Tensor | None, word_ids: Tensor | None = None) -> Tensor:
        """Give the vector of each word.

        Args:
            words: character ids from 1, (n_words, chars), or None without characters.
            word_ids: rows of the word table, (n_words,), or None without one.

        Returns:
            (n_words, dim of the LSTMs).
        """
        parts: list[Tensor] = []
        if self.config.n_words and word_ids is not None:
            parts.append(torch.nn.functional.embedding(word_ids, self.words))
        if self.config.n_characters and words is not None:
            parts.append(self._characters(words))
        features = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        if self.projection is None:
            return features
        return torch.nn.functional.linear(features, self.projection.weight, self.projection.bias)

    def _characters(self, words: Tensor) -> Tensor:
        parameters = list(self.convolutions.parameters())
        filters, biases = parameters[::2], parameters[1::2]
        features = convolve(words, self.characters, filters, biases)
        features = torch.relu(features) if self.config.activation == "relu" else features.tanh()
        for highway in self.highways:
            features = highway(features)
        return features


class _Affine(nn.Module):
    """A weight and a bias that start at zero: building a model draws no random numbers."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(*shape))
        self.bias = nn.Parameter(torch.zeros(shape[0]))

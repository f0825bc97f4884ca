"""The token layer: one vector for each distinct word, whatever its context.

This is the version with gradients, or for a GPU; `compute.charcnn` is the one for inference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmore.compute.charcnn import groups_by_length
from elmore.config import BiLmConfig


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
                Affine(count, tokens.char_dim, width) for width, count in tokens.filters
            )
            self.highways = nn.ModuleList(
                _Highway(tokens.n_filters) for _ in range(tokens.n_highway)
            )
        self.projection = (
            Affine(config.lstm.projection_dim, tokens.n_features) if tokens.projected else None
        )

    def forward(self, words: Tensor | None, word_ids: Tensor | None = None) -> Tensor:
        """The vector of each word.

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
        return features if self.projection is None else self.projection(features)

    def _characters(self, words: Tensor) -> Tensor:
        parameters = list(self.convolutions.parameters())
        # Each convolution registers its weight, then its bias.
        filters, biases = parameters[::2], parameters[1::2]
        features = convolve(words, self.characters, filters, biases)
        features = torch.relu(features) if self.config.activation == "relu" else features.tanh()
        for highway in self.highways:
            features = highway(features)
        return features


class Affine(nn.Module):
    """A weight and a bias that start at zero: building a model draws no random numbers."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(*shape))
        self.bias = nn.Parameter(torch.zeros(shape[0]))

    def forward(self, x: Tensor) -> Tensor:
        """Multiply rows with a matrix, (n, inputs) to (n, outputs)."""
        return torch.nn.functional.linear(x, self.weight, self.bias)


class _Highway(Affine):
    """y = g * relu(T x + a) + (1 - g) * x with g = sigmoid(G x + b) (Srivastava et al. 2015).

    `weight` holds T above G, so that one matrix product serves both. The gate is the one that
    bilm-tf calls "carry": it lets the *transformed* part through.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(2 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Transform features, (n, dim) to (n, dim)."""
        both = super().forward(x)
        transformed, gate = both.to(x.dtype).chunk(2, dim=1)  # autocast rounds products alone
        if torch.is_grad_enabled():
            return torch.lerp(x, transformed.relu(), gate.sigmoid())
        return torch.lerp(x, transformed.relu_(), gate.sigmoid_())


def _character_tables(characters: Tensor, filters: Sequence[Tensor]) -> list[Tensor]:
    """What each character adds at each place of a filter, (width * n_characters, count).

    As `compute.charcnn.character_tables`: a window's response is then a sum of table rows.
    """
    return [
        torch.einsum("cd,ndk->kcn", characters, weight).reshape(-1, weight.shape[0])
        for weight in filters
    ]


def _responses(
    ids: Tensor, tables: Sequence[Tensor], n_characters: int
) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Yield groups of words, and the responses of each filter at all places, (n, places, count)."""
    widths = [table.shape[0] // n_characters for table in tables]
    for chosen, columns in groups_by_length(ids.cpu().numpy(), max(widths)):
        members = torch.from_numpy(chosen).to(ids.device)
        group = ids.index_select(0, members)[:, :columns] - 1
        responses = []
        for width, table in zip(widths, tables, strict=True):
            # (words, places, width): rows of the table whose sum is the window's value
            rows = group.unfold(1, width, 1) + torch.arange(
                0, width * n_characters, n_characters, device=ids.device
            )
            values = torch.nn.functional.embedding_bag(rows.reshape(-1, width), table, mode="sum")
            responses.append(values.view(len(members), -1, table.shape[1]))
        yield members, responses


class _Convolution(torch.autograd.Function):
    """Table sums forward; backward, only the window that won in each filter has a gradient."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, characters: Tensor, *weights: Tensor) -> Tensor:
        filters, biases = weights[::2], weights[1::2]
        tables = _character_tables(characters, filters)
        shape = (ids.shape[0], sum(table.shape[1] for table in tables))
        result = characters.new_empty(shape)
        # Where each filter won: all that the backward pass needs of the windows.
        starts = ids.new_empty(shape)
        for members, responses in _responses(ids, tables, len(characters)):
            best = [values.max(dim=1) for values in responses]
            result[members] = torch.cat([found.values for found in best], dim=1)
            starts[members] = torch.cat([found.indices for found in best], dim=1)
        ctx.save_for_backward(ids, characters, starts, *filters)
        return result.add_(torch.cat(biases))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_result: Tensor) -> tuple[Tensor | None, ...]:
        ids, characters, starts, *filters = ctx.saved_tensors
        counts = [weight.shape[0] for weight in filters]
        d_characters = torch.zeros_like(characters)
        gradients: list[Tensor] = []
        places = zip(
            filters, torch.split(d_result, counts, 1), torch.split(starts, counts, 1), strict=True
        )
        for weight, d_values, start in places:
            count, char_dim, width = weight.shape
            d_weight = weight.new_empty(width, char_dim, count)
            for k in range(width):
                # Every winning window adds its gradient to the row of its k-th character.
                d_table = weight.new_zeros(len(characters), count)
                d_table.scatter_add_(0, ids.gather(1, start + k) - 1, d_values)
                torch.mm(characters.t(), d_table, out=d_weight[k])
                d_characters.addmm_(d_table, weight[:, :, k])
            gradients += [d_weight.permute(2, 1, 0).contiguous(), d_values.sum(dim=0)]
        return None, d_characters, *gradients


def convolve(
    ids: Tensor, characters: Tensor, filters: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """The largest response of each filter; differentiable.

    Arguments are those of `compute.charcnn.FilterTables` and its `largest`.

    Returns:
        (n_words, n_filters), before the activation.
    """
    pairs = [weight for pair in zip(filters, biases, strict=True) for weight in pair]
    # Sums of a few table rows: nothing for bfloat16 to win, and the winner must not be a tie.
    with torch.autocast(characters.device.type, enabled=False):
        result: Tensor = _Convolution.apply(ids, characters, *pairs)  # type: ignore[no-untyped-call]  # torch leaves it so
    return result

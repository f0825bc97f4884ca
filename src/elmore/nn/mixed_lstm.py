"""The `lstm` encoder of ELMoForManyLangs: each layer reads both directions of the one below."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from elmore.config import LstmConfig
from elmore.nn.packing import Packing

__all__ = ["SharedProjection", "mixed_layers"]


class SharedProjection(nn.Module):
    """One linear layer for the outputs of both directions; it starts at zero."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(config.projection_dim, config.dim))
        self.bias = nn.Parameter(torch.zeros(config.projection_dim))

    def forward(self, x: Tensor) -> Tensor:
        """Project outputs, (n, cells) to (n, projection_dim)."""
        return torch.nn.functional.linear(x, self.weight, self.bias)


def mixed_layers(
    stacks: Iterable[Any],
    projection: SharedProjection,
    vectors: Tensor,
    index: Tensor,
    packing: Packing,
) -> Tensor:
    """Run the layers from zero state over each sentence's own tokens.

    The original runs over the padded batch, so that its backward direction begins in the padding.
    Who wants that passes the padding as tokens, with full lengths (compat/manylangs.py).

    Args:
        stacks: the layers of the forward and of the backward direction.
        projection: the layer after the last one.
        vectors: vectors of the distinct words, (n_words, dim).
        index: word of each place, (batch, time).
        packing: the plan of the batch.

    Returns:
        the one layer of output, (batch, time, 2 * projection_dim); zero where a sentence has
        ended.
    """
    batch, time = index.shape
    flat = index.flatten()
    places = (packing.forward, packing.backward)
    inputs = vectors.index_select(0, flat)  # (batch * time, dim)
    halves: list[Tensor] = []
    for pair in zip(*stacks, strict=True):
        halves = []
        for layer, place in zip(pair, places, strict=True):
            cells = layer.state_weight.shape[1]
            zeros = inputs.new_zeros(batch, cells)
            output, _, _ = layer(inputs.index_select(0, place), None, packing, zeros, zeros)
            halves.append(inputs.new_zeros(batch * time, cells).index_copy(0, place, output))
        inputs = torch.cat(halves, dim=1)
    result = inputs.new_zeros(batch * time, 2 * len(projection.bias))
    rows = [projection(half.index_select(0, packing.forward)) for half in halves]
    result = result.index_copy(0, packing.forward, torch.cat(rows, dim=1))
    return result.view(batch, time, -1)

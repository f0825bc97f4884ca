"""The highway layers between the character convolutions and the projection."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Highway"]


class Highway(nn.Module):
    """y = g * relu(T x + a) + (1 - g) * x with g = sigmoid(G x + b) (Srivastava et al. 2015).

    `weight` holds T above G, so that one matrix product serves both. The gate is the one that
    bilm-tf calls "carry": it lets the *transformed* part through.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2 * dim, dim))
        self.bias = nn.Parameter(torch.zeros(2 * dim))

    def forward(self, x: Tensor) -> Tensor:
        """Transform features, (n, dim) to (n, dim)."""
        both = torch.nn.functional.linear(x, self.weight, self.bias)
        transformed, gate = both.to(x.dtype).chunk(2, dim=1)  # autocast rounds products alone
        if torch.is_grad_enabled():
            return torch.lerp(x, transformed.relu(), gate.sigmoid())
        return torch.lerp(x, transformed.relu_(), gate.sigmoid_())

"""The full softmax without gradients, on any device; `kernels.softmax` is for inference."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["log_likelihoods"]

# Logits that exist at once: 4 MB stay in the cache through the four passes over them, and larger
# blocks make the matrix product no faster (50,000 words, dim 128).
_BLOCK_ROWS, _BLOCK_WORDS = 512, 2048


def log_likelihoods(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Give the log probability of each target, (n,), in double precision.

    Logits are made in blocks, never all of them, and summed up under a running maximum.

    Args:
        hidden: (n, dim).
        targets: (n,).
        weight: (n_words, dim).
        bias: (n_words,).
    """
    with torch.no_grad():
        n = len(hidden)
        largest = hidden.new_full((n,), -torch.inf)
        total = torch.zeros(n, dtype=torch.float64, device=hidden.device)
        picked = hidden.new_zeros(n)
        buffer = hidden.new_empty(_BLOCK_ROWS * _BLOCK_WORDS)
        for first in range(0, len(bias), _BLOCK_WORDS):
            words = slice(first, first + _BLOCK_WORDS)
            block_weight, block_bias = weight[words], bias[words]
            for start in range(0, n, _BLOCK_ROWS):
                rows = slice(start, min(n, start + _BLOCK_ROWS))
                shape = (rows.stop - start, len(block_bias))
                logits = buffer[: shape[0] * shape[1]].view(shape)
                torch.addmm(block_bias, hidden[rows], block_weight.t(), out=logits)
                column = targets[rows] - first
                here = ((column >= 0) & (column < len(block_bias))).nonzero()[:, 0]
                picked[start + here] = logits[here, column[here]]
                top = torch.maximum(largest[rows], logits.amax(dim=1))
                total[rows] *= torch.exp((largest[rows] - top).double())
                total[rows] += logits.sub_(top[:, None]).exp_().sum(dim=1)
                largest[rows] = top
        return (picked.double() - largest.double()) - total.log()

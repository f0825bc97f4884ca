"""The full softmax without gradients: log probabilities of given words, logits of all words."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["log_likelihoods", "word_logits"]

Table = Tensor | NDArray[np.float32]

# Logits that exist at once: 4 MB stay in the cache through the four passes over them, and larger
# blocks make the matrix product no faster (50,000 words, dim 128).
_BLOCK_ROWS, _BLOCK_WORDS = 512, 2048


def log_likelihoods(hidden: Tensor, targets: Tensor, weight: Table, bias: Table) -> Tensor:
    """Give the log probability of each target, (n,), in double precision.

    Logits are made in blocks, never all of them, and summed up under a running maximum.

    Args:
        hidden: (n, dim).
        targets: (n,).
        weight: (n_words, dim); an array stays where it is but for the block in use.
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
            block_weight, block_bias = _rows(weight, bias, words, hidden.device)
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


def word_logits(hidden: Tensor, weight: Table, bias: Table) -> Tensor:
    """Give the logit of every word, (n, n_words), in double precision.

    Args:
        hidden: (n, dim).
        weight: (n_words, dim), as in `log_likelihoods`.
        bias: (n_words,).
    """
    logits = []
    with torch.no_grad():
        for first in range(0, len(bias), _BLOCK_WORDS):
            words = slice(first, first + _BLOCK_WORDS)
            block_weight, block_bias = _rows(weight, bias, words, hidden.device)
            logits.append(torch.addmm(block_bias, hidden, block_weight.t()).double())
    return torch.cat(logits, dim=1)


def _rows(weight: Table, bias: Table, words: slice, device: torch.device) -> tuple[Tensor, Tensor]:
    """Give the rows of some words; an array of a mapped file is read-only, so copied."""
    block_weight, block_bias = (
        part
        if isinstance(part, Tensor)
        else torch.from_numpy(part if part.flags.writeable else part.copy())
        for part in (weight[words], bias[words])
    )
    return block_weight.to(device), block_bias.to(device)

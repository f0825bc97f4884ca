"""Attention between two texts, within one, and pooling over tokens; padding never counts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["SelfAttentivePooling", "Trilinear", "masked_max", "masked_mean", "masked_softmax"]


def masked_softmax(
    scores: Tensor, mask: Tensor, *, dim: int = -1, nothing: Tensor | None = None
) -> Tensor:
    """A softmax over what is real; all zeros where nothing is.

    Args:
        scores: any shape, which the weights have too.
        mask: what is real, broadcastable to it.
        dim: the axis to normalise.
        nothing: score of attending to nothing, (), which takes its share of the weight.
    """
    scores = scores.masked_fill(~mask, -torch.inf)
    # amax refuses an empty axis; where all is masked, the maximum is -inf and must become finite.
    top = scores.amax(dim=dim, keepdim=True) if scores.shape[dim] else scores.sum(dim, True)
    top = top.clamp(min=torch.finfo(scores.dtype).min).detach()
    if nothing is not None:
        top = torch.maximum(top, nothing.detach())
    powers = torch.exp(scores - top)
    total = powers.sum(dim=dim, keepdim=True)
    if nothing is not None:
        total = total + torch.exp(nothing - top)
    return powers / total.clamp(min=torch.finfo(scores.dtype).tiny)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Average over real tokens, (batch, time, dim) to (batch, dim); zeros for an empty text."""
    real = mask[:, :, None].to(values.dtype)
    return (values * real).sum(1) / real.sum(1).clamp(min=1)


def masked_max(values: Tensor, mask: Tensor) -> Tensor:
    """Take the maximum over real tokens, (batch, time, dim) to (batch, dim); zeros if empty."""
    if not values.shape[1]:
        return values.sum(1)
    top = values.masked_fill(~mask[:, :, None], -torch.inf).amax(1)
    return torch.where(mask.any(1)[:, None], top, torch.zeros_like(top))


class Trilinear(nn.Module):
    """s_ij = w_x x_i + w_q q_j + (w_d * x_i) q_j + b, for vectors of size `dim` (Seo et al. 2017).

    The pairs [x_i; q_j; x_i * q_j] are never written out: (batch, n, m, 3 * dim) is large.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(dim, 1)
        self.second = nn.Linear(dim, 1, bias=False)
        self.both = nn.Parameter(torch.empty(dim))
        bound = (6 / (dim + 1)) ** 0.5
        nn.init.uniform_(self.both, -bound, bound)

    def forward(self, x: Tensor, q: Tensor) -> Tensor:
        """Score pairs: (batch, n, dim) and (batch, m, dim) to (batch, n, m)."""
        product = (x * self.both) @ q.transpose(1, 2)
        scores: Tensor = product + self.first(x) + self.second(q).transpose(1, 2)
        return scores


class SelfAttentivePooling(nn.Module):
    """A mean over tokens of size `dim`, weighted by the softmax of a learned linear score."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Pool (batch, time, dim) into (batch, dim)."""
        weights = masked_softmax(self.score(values).squeeze(2), mask)
        return (weights[:, None, :] @ values).squeeze(1)

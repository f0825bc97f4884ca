"""The softmax of the language model: losses with gradients written by hand, and likelihoods.

Every loss has the same signature (`SoftmaxLoss`): hidden vectors and targets in, the summed loss
and all gradients out. Autograd would build a gradient of the complete vocabulary for each batch;
here only the rows that took part exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Logits that exist at once: 16 MB, which are faster than four times as many and than a quarter
# (50,000 words, dim 128, one thread).
_BLOCK = 4 << 20


class RowGradient(NamedTuple):
    """The gradient of some rows of the softmax; a row may occur more than once.

    Attributes:
        ids: rows, (n,); None if `weight` and `bias` cover all rows in order.
        weight: (n, dim).
        bias: (n,).
    """

    ids: Tensor | None
    weight: Tensor
    bias: Tensor


class LossResult(NamedTuple):
    """What a loss gives.

    Attributes:
        total: summed loss of all targets, not scaled, ().
        d_hidden: gradient of scale * total, (n, dim).
        rows: gradient of the softmax, likewise scaled.
    """

    total: Tensor
    d_hidden: Tensor
    rows: RowGradient


# (hidden (n, dim), targets (n,), weight (n_words, dim), bias (n_words,), scale) -> LossResult;
# all gradients are those of scale * total.
SoftmaxLoss = Callable[[Tensor, Tensor, Tensor, Tensor, float], LossResult]


@dataclass(frozen=True)
class Negatives:
    """Distinct words that every target of a batch is compared with.

    Attributes:
        ids: sorted, (n,).
        tries: draws that it took to find them, repeats included.
        n_words: size of the vocabulary.
    """

    ids: Tensor
    tries: int
    n_words: int

    def log_expected(self, ids: Tensor) -> Tensor:
        """The log of the chance that each word was drawn, (n,).

        q(k) = 1 - (1 - p(k))^tries, in double precision: in float32 rare words would vanish.
        """
        k = ids.double()
        p = torch.log1p(1 / (k + 1)) / math.log(self.n_words + 1)
        return torch.log(-torch.expm1(self.tries * torch.log1p(-p))).float()


def draw_negatives(count: int, n_words: int, generator: np.random.Generator) -> Negatives:
    """Draw distinct words from the log-uniform prior p(k) = ln((k+2)/(k+1)) / ln(V+1).

    It draws until there are `count` different words, as TensorFlow's sampler does, or all
    `n_words` if there are no more. Ids are ranks of frequency.
    """
    wanted = min(count, n_words)
    drawn: NDArray[np.int64] = np.empty(0, np.int64)
    while True:
        uniform = generator.random(2 * wanted + 64)
        block = np.exp(uniform * math.log(n_words + 1)).astype(np.int64) - 1
        # Rounding can carry a draw close to 1 beyond the last word.
        drawn = np.concatenate([drawn, np.minimum(block, n_words - 1)])
        distinct, first = np.unique(drawn, return_index=True)
        if len(distinct) >= wanted:
            break
    if len(distinct) > wanted:  # keep the earliest: later draws would not have happened
        earliest = np.argpartition(first, wanted - 1)[:wanted]
        distinct, first = distinct[np.sort(earliest)], first[earliest]
    return Negatives(torch.from_numpy(distinct), int(first.max()) + 1, n_words)


def sampled_softmax(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    scale: float,
    negatives: Negatives,
    *,
    rounded: bool = False,
) -> LossResult:
    """Compare each target with the same few negatives (Jean et al. 2015, TensorFlow's variant).

    All logits are corrected by the log of their expected count; a negative that equals a row's
    own target is removed from that row. With `rounded`, the gradients' matrix products run in
    bfloat16; logits and the loss stay in float32.
    """
    ids = negatives.ids.to(hidden.device)
    sampled_weight = weight.index_select(0, ids)
    sampled_bias = bias.index_select(0, ids) - negatives.log_expected(ids)
    true_weight = weight.index_select(0, targets)
    true = (hidden * true_weight).sum(dim=1)
    true += bias.index_select(0, targets) - negatives.log_expected(targets)
    logits = torch.addmm(sampled_bias, hidden, sampled_weight.t())
    # The negatives are distinct and sorted, so a row has at most one hit, found by bisection.
    place = torch.searchsorted(ids, targets).clamp_(max=len(ids) - 1)
    hit = (ids[place] == targets).nonzero().flatten()
    logits[hit, place[hit]] = -torch.inf
    # From here on the logits' memory is used for the shares, and then for their gradients.
    largest = torch.maximum(logits.amax(dim=1), true)
    logits.sub_(largest[:, None]).exp_()
    true_share = torch.exp(true - largest)
    normaliser = logits.sum(dim=1) + true_share
    total = (largest + normaliser.log() - true).sum()
    logits.mul_((scale / normaliser)[:, None])
    d_true = (true_share / normaliser - 1) * scale
    d_bias = logits.sum(dim=0)
    factor = torch.bfloat16 if rounded else hidden.dtype
    logits = logits.to(factor)
    d_sampled = (logits @ sampled_weight.to(factor)).to(hidden.dtype)
    d_weight = (logits.t() @ hidden.to(factor)).to(hidden.dtype)
    d_hidden = d_sampled.addcmul_(d_true[:, None], true_weight)
    rows = RowGradient(
        torch.cat([ids, targets]),
        torch.cat([d_weight, d_true[:, None] * hidden]),
        torch.cat([d_bias, d_true]),
    )
    return LossResult(total, d_hidden, rows)


def full_softmax(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, scale: float
) -> LossResult:
    """Compare each target with every word, a block of rows at a time."""
    d_weight, d_bias = torch.zeros_like(weight), torch.zeros_like(bias)
    d_hidden = torch.empty_like(hidden)
    total = hidden.new_zeros(())
    size = max(1, _BLOCK // len(bias))
    for start in range(0, len(hidden), size):
        rows = slice(start, start + size)
        logits = torch.addmm(bias, hidden[rows], weight.t())
        logs = torch.log_softmax(logits, dim=1)
        place = targets[rows, None]
        total -= logs.gather(1, place).sum()
        share = logs.exp_()  # the gradient of the loss is the softmax minus the target
        share.scatter_add_(1, place, share.new_full(place.shape, -1.0))
        share.mul_(scale)
        torch.mm(share, weight, out=d_hidden[rows])
        d_weight.addmm_(share.t(), hidden[rows])
        d_bias += share.sum(dim=0)
    return LossResult(total, d_hidden, RowGradient(None, d_weight, d_bias))


def log_likelihoods(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The log probability of each target, (n,), in double precision, a block of rows at a time.

    Shapes are those of `SoftmaxLoss`.
    """
    result = torch.zeros(len(hidden), dtype=torch.float64, device=hidden.device)
    size = max(1, _BLOCK // len(bias))
    with torch.no_grad():
        for start in range(0, len(hidden), size):
            rows = slice(start, start + size)
            logs = torch.log_softmax(torch.addmm(bias, hidden[rows], weight.t()), dim=1)
            result[rows] = logs.gather(1, targets[rows, None])[:, 0].double()
    return result

"""The softmax of the language model: losses with gradients written by hand, and likelihoods.

Every loss has the same signature (`SoftmaxLoss`): hidden vectors and targets in, the summed loss
and all gradients out. Autograd would build a gradient of the complete vocabulary for each batch;
here only the rows that took part exist.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Numbers of logits that exist at once in the loss of the full softmax.
_BLOCK = 16 << 20
# The same in `log_likelihoods`, as rows and words: 4 MB stay in the cache through the four passes
# over them, and larger blocks make the matrix product no faster (50,000 words, dim 128).
_BLOCK_ROWS, _BLOCK_WORDS = 512, 2048


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


def adaptive_softmax(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    scale: float,
    cutoffs: Sequence[int],
) -> LossResult:
    """Compare each target with the frequent words and, if it is rare, with its own cluster.

    p(w) = p(cluster of w) * p(w | cluster) for rare words (Grave et al. 2017, without smaller
    dimensions for rare words). `weight` and `bias` have a row for each cluster after those of the
    words. `cutoffs` are the first word of each cluster, rising; words before them are frequent.
    """
    head, tails = _clusters(len(bias), cutoffs, hidden.device)
    in_head = _head_targets(targets, cutoffs)
    total, d_hidden, rows = full_softmax(hidden, in_head, weight[head], bias[head], scale)
    ids, d_weight, d_bias = [head], [rows.weight], [rows.bias]
    for start, end in tails:
        members = ((targets >= start) & (targets < end)).nonzero().flatten()
        if not len(members):
            continue
        part = full_softmax(
            hidden[members], targets[members] - start, weight[start:end], bias[start:end], scale
        )
        total = total + part.total
        d_hidden.index_add_(0, members, part.d_hidden)
        ids.append(torch.arange(start, end, device=hidden.device))
        d_weight.append(part.rows.weight)
        d_bias.append(part.rows.bias)
    gradient = RowGradient(torch.cat(ids), torch.cat(d_weight), torch.cat(d_bias))
    return LossResult(total, d_hidden, gradient)


def log_likelihoods(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, cutoffs: Sequence[int] = ()
) -> Tensor:
    """The log probability of each target, (n,), in double precision.

    Logits are made in blocks, never all of them, and summed up under a running maximum. Shapes are
    those of `SoftmaxLoss`; with `cutoffs` the softmax is that of `adaptive_softmax`.
    """
    if cutoffs:
        head, tails = _clusters(len(bias), cutoffs, hidden.device)
        result = log_likelihoods(hidden, _head_targets(targets, cutoffs), weight[head], bias[head])
        for start, end in tails:
            members = ((targets >= start) & (targets < end)).nonzero().flatten()
            result[members] += log_likelihoods(
                hidden[members], targets[members] - start, weight[start:end], bias[start:end]
            )
        return result
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


def _clusters(
    n_rows: int, cutoffs: Sequence[int], device: torch.device
) -> tuple[Tensor, list[tuple[int, int]]]:
    """The rows of the head (frequent words, then clusters) and the bounds of the clusters."""
    n_words = n_rows - len(cutoffs)
    head = torch.cat([torch.arange(cutoffs[0]), torch.arange(n_words, n_rows)]).to(device)
    return head, list(itertools.pairwise([*cutoffs, n_words]))


def _head_targets(targets: Tensor, cutoffs: Sequence[int]) -> Tensor:
    """Replace rare words by the place of their cluster in the head."""
    bounds = torch.tensor(list(cutoffs), device=targets.device)
    cluster = torch.bucketize(targets, bounds, right=True)
    return torch.where(cluster == 0, targets, cutoffs[0] + cluster - 1)

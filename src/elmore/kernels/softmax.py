"""The full softmax over a vocabulary, without gradients: log probabilities of words."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from elmore.kernels.matrix import Array, Matrix, Stored

__all__ = ["LogSoftmax", "log_sum"]

Logs = NDArray[np.float64]
Ints = NDArray[np.int64]

# Logits that exist at once: 4 MB stay in the cache through the passes over them, and larger blocks
# make the matrix product no faster (50,000 words, dim 128).
_BLOCK_ROWS, _BLOCK_WORDS = 512, 2048
# Tables up to this size are packed once and kept; larger ones (800,000 words of the original
# models) stay mapped from their file, and each block is packed when it is needed.
_KEPT_BYTES = 128 << 20


def log_sum(logs: Logs) -> Logs:
    """The log of the sum of what these are the logs of: (n, n_words) to (n, 1)."""
    largest = logs.max(axis=-1, keepdims=True)
    return np.asarray(largest + np.log(np.exp(logs - largest).sum(axis=-1, keepdims=True)))


class LogSoftmax:
    """Log probabilities of words, plain or with clusters of rare words (Grave et al. 2017).

    Args:
        weight: (n_rows, dim). With `cutoffs` one row per cluster follows those of the words.
        bias: (n_rows,).
        cutoffs: first word of each cluster; empty for a plain softmax.
    """

    def __init__(self, weight: Array, bias: Array, cutoffs: Sequence[int] = ()) -> None:
        self._cutoffs = tuple(cutoffs)
        if not cutoffs:
            self._head, self._bounds, self._tails = _Table(weight, bias), [], []
            return
        n_words = len(bias) - len(cutoffs)
        head = np.r_[0 : cutoffs[0], n_words : len(bias)]
        self._head = _Table(weight[head], bias[head])
        self._bounds = list(itertools.pairwise([*cutoffs, n_words]))
        self._tails = [_Table(weight[a:b], bias[a:b]) for a, b in self._bounds]

    def of(self, hidden: Array, targets: Ints) -> Logs:
        """The log probability of each target, (n,), in double precision.

        Args:
            hidden: (n, dim).
            targets: word ids, (n,).
        """
        if not self._cutoffs:
            return self._head.log_likelihoods(hidden, targets)
        cluster = np.searchsorted(self._cutoffs, targets, side="right")
        first = np.where(cluster == 0, targets, self._cutoffs[0] + cluster - 1)
        result = self._head.log_likelihoods(hidden, first)
        for k, (start, _) in enumerate(self._bounds):
            members = np.flatnonzero(cluster == k + 1)
            if len(members):
                inside = targets[members] - start
                result[members] += self._tails[k].log_likelihoods(hidden[members], inside)
        return result

    def all(self, hidden: Array) -> Logs:
        """The log probability of every word, (n, n_words), from (n, dim)."""
        head = self._head.logits(hidden)
        head -= log_sum(head)
        if not self._cutoffs:
            return head
        n_head = self._cutoffs[0]
        parts = [head[:, :n_head]]
        for k, table in enumerate(self._tails):
            logits = table.logits(hidden)
            parts.append(logits - log_sum(logits) + head[:, n_head + k, None])
        return np.concatenate(parts, axis=1)


class _Table:
    """A softmax without clusters."""

    def __init__(self, weight: Array, bias: Array) -> None:
        self._weight, self._bias = weight, np.array(bias, np.float32)
        self._kept: list[Matrix] | None = None
        if weight.size * 4 <= _KEPT_BYTES:
            self._kept = [self._pack(first) for first in range(0, len(bias), _BLOCK_WORDS)]

    def _pack(self, first: int) -> Matrix:
        rows = self._weight[first : first + _BLOCK_WORDS]
        return Matrix(Stored(np.asarray(rows, np.float32)))

    def _blocks(self) -> Iterator[tuple[int, Matrix, Array]]:
        for number, first in enumerate(range(0, len(self._bias), _BLOCK_WORDS)):
            matrix = self._pack(first) if self._kept is None else self._kept[number]
            yield first, matrix, self._bias[first : first + _BLOCK_WORDS]

    def log_likelihoods(self, hidden: Array, targets: Ints) -> Logs:
        """The log probability of each target, (n,).

        Logits are made in blocks, never all of them, and summed up under a running maximum.
        """
        n = len(hidden)
        largest = np.full(n, -np.inf, np.float32)
        total = np.zeros(n)
        picked = np.zeros(n)
        for first, matrix, bias in self._blocks():
            for start in range(0, n, _BLOCK_ROWS):
                rows = slice(start, min(n, start + _BLOCK_ROWS))
                logits = matrix.affine(hidden[rows], bias)
                column = targets[rows] - first
                here = np.flatnonzero((column >= 0) & (column < len(bias)))
                picked[start + here] = logits[here, column[here]]
                top = np.maximum(largest[rows], logits.max(axis=1))
                # exp(-inf) is 0 for the first block; -inf - (-inf) cannot occur with finite logits.
                total[rows] *= np.exp((largest[rows] - top).astype(np.float64))
                logits -= top[:, None]
                total[rows] += np.exp(logits, out=logits).sum(axis=1)
                largest[rows] = top
        return np.asarray((picked - largest) - np.log(total))

    def logits(self, hidden: Array) -> Logs:
        """The logit of every row of the table, (n, n_rows)."""
        parts = [matrix.affine(hidden, bias) for _, matrix, bias in self._blocks()]
        return np.concatenate(parts, axis=1).astype(np.float64)

"""The full softmax over a vocabulary, without gradients: log probabilities of words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.compute.matrix import Array, Matrix, Stored, dequantize, quantize
from elmore.compute.native import aligned, native, pointer, workspace

Logs = NDArray[np.float64]
Ints = NDArray[np.int64]

# Logits that exist at once: 4 MB stay in the cache through the passes over them, and larger blocks
# make the matrix product no faster (50,000 words, dim 128).
_BLOCK_ROWS, _BLOCK_WORDS = 512, 2048
# Tables up to this size are packed once and kept; larger ones (800,000 words of the original
# models) stay mapped from their file, and each block is packed when it is needed.
_KEPT_BYTES = 128 << 20
# Rows whose logits of all words exist at once in `likeliest`: 6 MB for 50,000 words.
_RANKED_ROWS = 32
# In place of minus infinity, which has no place in the kernel.
_LOWEST = np.float32(-1e30)
# Words of one group there: the maxima of groups tell which words can be among the likeliest.
_GROUP = 64


def log_sum(logs: Logs) -> Logs:
    """The log of the sum of what these are the logs of: (n, n_words) to (n, 1)."""
    largest = logs.max(axis=-1, keepdims=True)
    return np.asarray(largest + np.log(np.exp(logs - largest).sum(axis=-1, keepdims=True)))


class Likeliest(NamedTuple):
    """The likeliest words at n places.

    Attributes:
        ids: words, the likeliest first, (n, k).
        values: their values, not normalised, (n, k).
        total: log of the sum of exp(value) over all words, (n,).
    """

    ids: NDArray[np.int32]
    values: Array
    total: Array


class LogSoftmax:
    """Log probabilities of words.

    Args:
        weight: (n_words, dim).
        bias: (n_words,).
        int8: multiply in int8, not in float32, whatever the numbers of `weight` are.
    """

    def __init__(self, weight: Stored, bias: Array, *, int8: bool = False) -> None:
        self._head = _Table(weight, bias, int8)

    def of(self, hidden: Array, targets: Ints) -> Logs:
        """The log probability of each target, (n,), in double precision, from (n, dim)."""
        return self._head.log_likelihoods(hidden, targets)

    def all(self, hidden: Array) -> Logs:
        """The log probability of every word, (n, n_words), from (n, dim)."""
        head = self._head.logits(hidden)
        head -= log_sum(head)
        return head

    def chosen(self, hidden: Array, ids: Ints) -> Logs:
        """The sum over predictions of the log probability of chosen words, up to a constant.

        `hidden` has one row per prediction, (n_predictions, dim); `ids` is (n,).
        """
        return np.asarray(
            self._head.rows(ids) @ hidden.sum(axis=0) + len(hidden) * self._head.bias[ids]
        )

    def likeliest(
        self,
        hidden: Sequence[Array],
        prior: Array,
        k: int,
        *,
        rounded: bool = False,
        scale: float = 1.0,
    ) -> Likeliest:
        """The k likeliest words by the product of several predictions and a prior.

        A word's value is the sum of its logits over the predictions plus its prior; special words
        have a prior of minus infinity. All predictions share one table, so the sum of the logits is
        the logit of the sum of the vectors: one matrix product instead of two.

        Args:
            hidden: one array (n, dim) per prediction.
            prior: (n_words,).
            k: how many words.
            rounded: multiply in int8 if that is faster here; values change by about 1 per cent.
            scale: how many predictions each array is the weighted sum of.

        Returns:
            see `Likeliest`; rows do not depend on each other.
        """
        bias = scale * len(hidden) * self._head.bias + prior
        summed = np.sum(hidden, axis=0)
        sums = self._head.rounded_sums if rounded else self._head.sums
        parts = [
            _rank(sums(summed[at : at + _RANKED_ROWS], bias), k)
            for at in range(0, len(summed), _RANKED_ROWS)
        ]
        return Likeliest(*map(np.concatenate, zip(*parts, strict=True)))


def _rank(values: Array, k: int) -> Likeliest:
    """Pick the k largest of each row, in falling order, and the log of the sum of all exps."""
    (n, n_words), module = values.shape, native().module
    k = min(k, n_words)
    if module is None or not n or not k:
        return _rank_reference(values, k)
    ids, best, sums = np.empty((n, k), np.int32), aligned(n, k), aligned(n)
    space = workspace(module.rank_workspace(n_words))
    # False if a row has fewer than k values: minus infinity is none, and NaN neither.
    if not module.rank(
        ids.ctypes.data,
        pointer(best, n, k),
        pointer(sums, n),
        pointer(values, n, n_words),
        space,
        n,
        n_words,
        k,
    ):
        return _rank_reference(values, k)
    return Likeliest(ids, best, best[:, 0] + np.log(sums))


def _rank_reference(values: Array, k: int) -> Likeliest:
    """As `_rank`, in numpy: the definition of the kernel.

    A full sort or partition of 50,000 numbers costs more than the product that made them. The
    k-th largest maximum of groups of words is a bound that few words reach; only these are sorted.
    """
    n, n_words = values.shape
    whole = n_words - n_words % _GROUP
    maxima = values[:, :whole].reshape(n, _GROUP, -1).max(axis=1) if whole else values[:, :0]
    maxima = np.concatenate([maxima, values[:, whole:]], axis=1)
    bounds = np.full(n, -np.inf, np.float32)
    if maxima.shape[1] > k:
        bounds = np.partition(maxima, -k, axis=1)[:, -k]
    ids, logs = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
    for row, bound in enumerate(bounds):
        found = np.flatnonzero(~(values[row] < bound))  # with NaN, which shows in the total
        order = np.argsort(-values[row, found], kind="stable")[:k]
        ids[row] = found[order]
        logs[row] = values[row, ids[row]]
    largest = logs[:, :1]
    total = np.exp(values - largest).sum(axis=1, dtype=np.float64)
    return Likeliest(ids, logs, largest[:, 0] + np.log(total).astype(np.float32))


class _Table:
    """The table of a softmax, in blocks that the kernel multiplies."""

    def __init__(self, weight: Stored, bias: Array, int8: bool) -> None:
        self._weight, self.bias = weight, np.array(bias, np.float32)
        self._int8 = int8
        self._kept: list[Matrix] | None = None
        if weight.values.size * 4 <= _KEPT_BYTES:
            self._kept = [self._pack(first) for first in range(0, len(bias), _BLOCK_WORDS)]

    @cached_property
    def _small(self) -> Matrix | None:
        """The table in int8; None where that is not faster, or where it would not be kept."""
        if self._kept is None or not native().vectors:
            return None
        return Matrix(_as_int8(self._weight))

    def rounded_sums(self, hidden: Array, bias: Array) -> Array:
        """As `sums`, rounded to int8 where that is faster."""
        if self._small is None:
            return self.sums(hidden, bias)
        return self._small.affine(hidden, np.maximum(bias, _LOWEST))

    def rows(self, ids: Ints) -> Array:
        """Chosen rows in float32, (n, dim)."""
        return dequantize(self._numbers(ids))

    def _numbers(self, at: slice | Ints) -> Stored:
        """Chosen rows as they are multiplied with."""
        rows = self._weight.rows(at)
        return _as_int8(rows) if self._int8 else Stored(dequantize(rows))

    def _pack(self, first: int) -> Matrix:
        return Matrix(self._numbers(slice(first, first + _BLOCK_WORDS)), fine=True)

    def _blocks(self) -> Iterator[tuple[int, Matrix, Array]]:
        for number, first in enumerate(range(0, len(self.bias), _BLOCK_WORDS)):
            matrix = self._pack(first) if self._kept is None else self._kept[number]
            yield first, matrix, self.bias[first : first + _BLOCK_WORDS]

    def log_likelihoods(self, hidden: Array, targets: Ints) -> Logs:
        """The log probability of each target, (n,).

        Logits are made in blocks, never all of them, and summed up under a running maximum.
        """
        n = len(hidden)
        largest = np.full(n, -np.inf, np.float32)
        # In double precision, because it adds up over all words of the vocabulary.
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
        return self.sums(hidden, self.bias).astype(np.float64)

    def sums(self, hidden: Array, bias: Array) -> Array:
        """Products with every row of the table, and another bias, (n, n_rows)."""
        result = np.empty((len(hidden), len(bias)), np.float32)
        for first, matrix, _ in self._blocks():
            stop = first + matrix.shape[0]
            # minus infinity has no place in the kernel, which clips; so the bias is added here
            np.add(matrix.affine(hidden), bias[first:stop], out=result[:, first:stop])
        return result


def _as_int8(numbers: Stored) -> Stored:
    """Round rows to int8; what is stored so is left alone."""
    return numbers if numbers.scales is not None else quantize(numbers.values)

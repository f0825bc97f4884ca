"""Exact search for the most similar vectors, in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmore.embedding.results import Array, unit
from elmore.errors import ConfigError

# Rows of a block: its cosines with as many queries take 16 MB.
_BLOCK = 2048


class Hits(NamedTuple):
    """What a search found, the most similar first.

    Attributes:
        indices: rows of the corpus, (queries, k), or (k,) for one query.
        scores: their cosines, of the same shape.
    """

    indices: NDArray[np.int64]
    scores: Array


def search(queries: ArrayLike, corpus: ArrayLike, k: int = 10) -> Hits:
    """The rows of a corpus that are most similar to each query, by cosine.

    It compares all pairs, so nothing is missed. Memory is bounded: the corpus may be a
    `numpy.memmap` that is larger than memory.

    Args:
        queries: a vector (dim,) or a matrix (n, dim), such as `elmo.encode` gives.
        corpus: a matrix (m, dim).
        k: how many for each query; all m if there are fewer.

    Returns:
        indices and scores; of equally similar rows the first comes first.

    Examples:
        >>> from elmore import search
        >>> found = search([0.0, 1.0], [[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]], k=2)
        >>> found.indices.tolist(), found.scores.round(2).tolist()
        ([2, 1], [1.0, 0.7099999785423279])
    """
    asked, rows = np.asarray(queries, np.float32), np.asarray(corpus)
    if k < 1:
        raise ConfigError(f"k={k} asks for nothing; use 1 or more")
    if rows.ndim != 2 or asked.ndim not in (1, 2) or asked.shape[-1] != rows.shape[1]:
        raise ConfigError(
            f"queries of shape {asked.shape} in a corpus of shape {rows.shape}; pass (n, dim) and "
            "(m, dim)"
        )
    found = [
        hits for some in _blocks(np.atleast_2d(asked)) for hits in _search(unit(some), rows, k)
    ]
    shape = (*asked.shape[:-1], min(k, len(rows)))
    return Hits(
        np.array([hits.indices for hits in found], np.int64).reshape(shape),
        np.array([hits.scores for hits in found], np.float32).reshape(shape),
    )


def _search(queries: Array, rows: NDArray[Any], k: int) -> list[Hits]:
    """Search for a block of unit vectors."""
    best = [Hits(np.zeros(0, np.int64), np.zeros(0, np.float32)) for _ in queries]
    start = 0
    for block in _blocks(rows):
        cosines = queries @ unit(np.asarray(block, np.float32)).T
        if np.isnan(cosines).any():
            rows_here = f"{start}..{start + len(block) - 1}"
            raise ConfigError(
                f"the queries, or rows {rows_here} of the corpus, are not finite; leave out NaN"
            )
        for row, values in enumerate(cosines):
            mine = largest(values, k)
            indices = np.concatenate([best[row].indices, mine + start])
            scores = np.concatenate([best[row].scores, values[mine]])
            kept = largest(scores, k)
            best[row] = Hits(indices[kept], scores[kept])
        start += len(block)
    return best


def _blocks(rows: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK))


def largest(values: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Where the k largest values are, in falling order; of equal ones the first."""
    some = np.arange(len(values))
    if 0 < k < len(values):
        # Sorting all of them for the first ten would take longer than computing them.
        some = np.flatnonzero(values >= np.partition(values, -k)[-k])
    return some[np.argsort(-values[some], kind="stable")[:k]]

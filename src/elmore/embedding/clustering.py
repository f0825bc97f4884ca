"""Groups of vectors by average linkage, and the axes along which vectors differ."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elmore.embedding.results import unit

Array = NDArray[np.float32]
# The group of each vector, from 0, (n,).
Groups = NDArray[np.int64]


def average_linkage(distances: Array) -> tuple[Groups, Array]:
    """Average linkage by chains of nearest neighbours, the nearest groups first.

    Returns:
        (group, group it joins), (n - 1, 2), and their distances, (n - 1,).
    """
    distances = distances.copy()
    np.fill_diagonal(distances, np.inf)
    sizes, alive = np.ones(len(distances), np.float32), np.ones(len(distances), bool)
    merges: list[tuple[int, int]] = []
    heights: list[float] = []
    chain: list[int] = []
    while len(merges) < len(distances) - 1:
        if not chain:
            chain.append(int(alive.argmax()))
        one = chain[-1]
        two = int(distances[one].argmin())
        if len(chain) > 1 and distances[one, chain[-2]] <= distances[one, two]:
            two = chain[-2]
        if len(chain) < 2 or two != chain[-2]:
            chain.append(two)
            continue
        del chain[-2:]
        merges.append((one, two))
        heights.append(float(distances[one, two]))
        both = sizes[one] + sizes[two]
        mean = (sizes[one] * distances[one] + sizes[two] * distances[two]) / both
        mean[two], sizes[two], alive[one] = np.inf, both, False
        distances[two], distances[:, two] = mean, mean
        distances[one], distances[:, one] = np.inf, np.inf
    order = np.argsort(np.array(heights), kind="stable")
    joined = np.array(merges, np.int64).reshape(-1, 2)
    return joined[order], np.array(heights, np.float32)[order]


def cut_linkage(merges: Groups, n_groups: int) -> Groups:
    """The groups when so many are left, (n,)."""
    joins = np.arange(len(merges) + 1)
    done = merges[: len(joins) - n_groups]
    joins[done[:, 0]] = done[:, 1]  # a group joins another one only once
    while not np.array_equal(joins, joins[joins]):
        joins = joins[joins]
    return np.unique(joins, return_inverse=True)[1]


def by_size(groups: Groups) -> Groups:
    """The same groups, numbered by falling size."""
    return np.argsort(np.argsort(-np.bincount(groups), kind="stable"))[groups]


def leading_axes(vectors: Array, n: int, draws: np.random.Generator) -> Array:
    """Vectors on their n leading axes, of length 1 again; by subspace iteration."""
    n_axes = min(n, *vectors.shape)
    basis = draws.standard_normal((len(vectors), min(n_axes + 10, len(vectors))), np.float32)
    for _ in range(4):
        basis = np.linalg.qr(vectors @ (vectors.T @ basis))[0]
    left, lengths, _ = np.linalg.svd(basis.T @ vectors, full_matrices=False)
    return unit(np.asarray(basis @ (left[:, :n_axes] * lengths[:n_axes]), np.float32))


def principal_axes(vectors: Array) -> Array:
    """Vectors (n, dim) on the two axes along which they differ most, for a map, (n, 2)."""
    centred = (vectors - vectors.mean(axis=0)).astype(np.float64)
    points = centred @ np.linalg.eigh(centred.T @ centred)[1][:, :-3:-1]
    # An axis has no sign of its own; a fixed one keeps the map from flipping.
    largest = points[np.abs(points).argmax(axis=0), range(points.shape[1])]
    return np.asarray(points * np.where(largest < 0, -1, 1))

"""Divide the uses of an index into cells of similar ones; see `Index.add_cells`.

k-means (by faiss) finds centres, and each use belongs to the nearest one. A search scores the uses
of the cells whose centres are nearest to the query; what other cells hold it misses. The cells are
plain arrays beside those of `senses/index.py`. So a search needs no faiss, and a folder from
elsewhere is never parsed by a library's own reader.

cells.npy           centres, unit vectors, (n_cells, dim)
cell_rows.npy       the uses, those of a cell next to each other
cell_offsets.npy    uses of cell c are cell_rows[cell_offsets[c] : cell_offsets[c + 1]]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_file, locked
from elmore.base.messages import Progress, shown
from elmore.base.optional import require
from elmore.language_model.sense_vectors import Array
from elmore.senses.index import CELLS, Index, read_manifest, write_manifest

__all__ = ["write_cells"]

# Uses that k-means learns from, for each cell; and how many a cell has on average, at least.
_SAMPLE, _LEAST = 64, 40
_ROUNDS = 10
# Rows whose vectors exist as float32 at once: 32 MB at 128 dimensions.
_BLOCK = 1 << 16


def write_cells(index: Index, threads: int | None, progress: Progress) -> None:
    """Add cells to the folder of an index; see `Index.add_cells`."""
    faiss: Any = require("faiss", "approximate", "an approximate index")
    path = index.path
    busy = f"'{shown(path, 120)}' is being written by another process; wait for it"
    with locked(path / "lock", busy):
        if threads is not None:
            faiss.omp_set_num_threads(threads)
        centres, cells = _find_cells(faiss, index, progress)
        sizes = np.bincount(cells, minlength=len(centres))
        arrays = (
            centres.astype("<f4"),
            np.argsort(cells, kind="stable").astype("<i4" if len(cells) < 1 << 31 else "<i8"),
            np.concatenate([[0], np.cumsum(sizes)]).astype("<i8"),
        )
        for name, array in zip(CELLS, arrays, strict=True):
            with atomic_file(path / f"{name}.npy", overwrite=True) as stream:
                np.save(stream, array)
        write_manifest(path, read_manifest(path), [f"{name}.npy" for name in CELLS])


def _find_cells(faiss: Any, index: Index, progress: Progress) -> tuple[Array, NDArray[np.int64]]:
    """The centres, (n_cells, dim), and the cell of each use, (n_uses,)."""
    n = len(index)
    n_cells = max(1, min(2 * math.isqrt(n), n // _LEAST))
    sample = np.sort(np.random.default_rng(0).permutation(n)[: n_cells * _SAMPLE])
    vectors = index.vectors(sample)
    means = faiss.Kmeans(
        vectors.shape[1],
        n_cells,
        niter=_ROUNDS,
        spherical=True,
        seed=0,
        min_points_per_centroid=1,
        max_points_per_centroid=_SAMPLE,
    )
    means.train(vectors)
    cells = np.empty(n, np.int64)
    for start in range(0, n, _BLOCK):
        rows = np.arange(start, min(n, start + _BLOCK))
        cells[rows] = means.index.search(index.vectors(rows), 1)[1][:, 0]
        progress.update(len(rows))
    return np.asarray(means.centroids, np.float32), cells

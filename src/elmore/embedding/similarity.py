"""How alike two vectors are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmore.errors import ConfigError

__all__ = ["cosine"]


def cosine(a: ArrayLike, b: ArrayLike) -> float | NDArray[np.float32]:
    """Give the cosine between vectors.

    Args:
        a: a vector (dim,) or a matrix (n, dim).
        b: a vector (dim,) or a matrix (m, dim).

    Returns:
        a number for two vectors; (n,) or (m,) for a matrix and a vector; (n, m) for two matrices.
        A zero vector has the cosine 0 with everything.

    Examples:
        >>> from elmore import cosine
        >>> cosine([1.0, 0.0], [1.0, 1.0])
        0.7071067690849304
    """
    left, right = np.asarray(a, np.float32), np.asarray(b, np.float32)
    for array in (left, right):
        if array.ndim not in (1, 2):
            raise ConfigError(
                f"cosine of an array of shape {array.shape}; pass vectors or matrices"
            )
    if left.shape[-1] != right.shape[-1]:
        raise ConfigError(
            f"cosine of vectors of {left.shape[-1]} and {right.shape[-1]} numbers; use equal sizes"
        )
    result: Any = _normalised(left) @ _normalised(right).T
    return float(result) if np.ndim(result) == 0 else result


def _normalised(array: NDArray[np.float32]) -> NDArray[np.float32]:
    norms = np.linalg.norm(array, axis=-1, keepdims=True)
    scales: NDArray[np.float32] = np.where(norms == 0, 1, norms).astype(np.float32)
    return array / scales

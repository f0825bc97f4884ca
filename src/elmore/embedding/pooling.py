"""One vector for a whole sentence."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from elmore.errors import ConfigError

__all__ = ["Pooling", "check_pooling", "pool", "unit_length"]

Pooling = Literal["mean", "max", "first", "last"]


def check_pooling(kind: str) -> None:
    """Refuse a name that is no pooling."""
    if kind not in get_args(Pooling):
        raise ConfigError(f"pool={kind!r}; use one of {', '.join(get_args(Pooling))}")


def pool(vectors: NDArray[np.float32], kind: Pooling) -> NDArray[np.float32]:
    """Pool the vectors of a sentence's tokens; the sentence markers are not among them.

    Args:
        vectors: (..., time, dim).
        kind: mean, largest value of each feature, or the first or last token's vector.

    Returns:
        (..., dim); zeros for a sentence without tokens.
    """
    if vectors.shape[-2] == 0:
        return np.zeros((*vectors.shape[:-2], vectors.shape[-1]), np.float32)
    if kind == "mean":
        # In float64: a sum of thousands of terms in float32 is wrong in the fifth digit.
        return np.asarray(vectors.mean(axis=-2, dtype=np.float64), np.float32)
    if kind == "max":
        return np.asarray(vectors.max(axis=-2))
    return vectors[..., 0 if kind == "first" else -1, :].copy()


def unit_length(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale an array to a Euclidean norm of 1 over all its numbers; zeros stay zeros."""
    length = np.linalg.norm(vectors)
    return np.asarray(vectors / length if length > 0 else vectors, np.float32)

"""Arrays in the type in which they are stored."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmore.config import Precision
from elmore.errors import ConfigError
from elmore.kernels.matrix import Stored, quantize

__all__ = ["StoredType", "as_precision", "as_stored", "is_matrix"]

StoredType = Literal["float32", "float16"]

# The large matrices; what else there is (characters, filters, biases) stays float32 beside int8.
_MATRICES = ("input_weight", "state_weight", "projection", "projection.weight")


def is_matrix(name: str) -> bool:
    """Tell whether a weight is stored in few bits where the precision asks for it."""
    last = name.split(".", 2)[-1]
    return name == "tokens.projection.weight" or (
        last in _MATRICES if "_layers." in name else "highways." in name and last.endswith("weight")
    )


def as_precision(name: str, weight: NDArray[np.float32], precision: Precision) -> Stored:
    """Give a weight in the numbers of a precision.

    Args:
        name: of `weight_shapes`.
        weight: float32, finite.
        precision: "float16" rounds every weight, "int8" the large matrices.
    """
    if precision == "int8":
        return quantize(weight) if is_matrix(name) else Stored(weight)
    return Stored(as_stored(weight, precision, what=name))


def as_stored(values: NDArray[np.float32], dtype: StoredType, *, what: str) -> NDArray[Any]:
    """Give finite values as they go into a file.

    Args:
        values: any shape.
        dtype: the type wanted.
        what: the values for messages.

    Raises:
        ConfigError: a value is too large for float16.
    """
    if dtype == "float32":
        return np.ascontiguousarray(values, np.float32)
    largest = float(np.abs(values).max(initial=0))
    if largest > float(np.finfo(np.float16).max):
        raise ConfigError(f"{what} holds {largest:.3g}, too large for float16; store float32")
    return np.ascontiguousarray(values, np.float16)

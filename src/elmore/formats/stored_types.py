"""Arrays in the type in which they are stored."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmore.errors import ConfigError

__all__ = ["StoredType", "as_stored"]

StoredType = Literal["float32", "float16"]


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

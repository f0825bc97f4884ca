"""Vectors as they are stored: finite, and in the type that was asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore._io import shown
from elmore.embedding.writers import Record, StoredType
from elmore.errors import ConfigError, ElmoreError

__all__ = ["stored"]


def stored(record: Record, dtype: StoredType) -> NDArray[Any]:
    """Give the values of a record as they go into a file.

    Raises:
        ElmoreError: a value is not finite.
        ConfigError: a value is too large for float16.
    """
    values = record.values
    if not np.isfinite(values).all():
        raise ElmoreError(
            f"the vectors of '{shown(record.text, 60)}' are not finite; check the weights of the "
            "model"
        )
    if dtype == "float32":
        return np.ascontiguousarray(values, np.float32)
    largest = float(np.abs(values).max(initial=0))
    if largest > float(np.finfo(np.float16).max):
        raise ConfigError(f"a vector holds {largest:.3g}, too large for float16; store float32")
    return np.ascontiguousarray(values, np.float16)

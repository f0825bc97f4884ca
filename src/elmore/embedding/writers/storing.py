"""Vectors as they are stored: finite, and in the type that was asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore._messages import shown
from elmore.embedding.writers import Record
from elmore.errors import ElmoreError
from elmore.formats.checkpoint import StoredType, as_stored

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
    return as_stored(values, dtype, what="a vector")

"""Vectors as Arrow columns, made without a Python object for each number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore._imports import require
from elmore.formats.checkpoint import StoredType

__all__ = ["VectorColumns"]


@dataclass(frozen=True, kw_only=True)
class VectorColumns:
    """What columns of vectors look like.

    Attributes:
        dim: size of a vector.
        pooled: whether a row has one vector, not a list of them.
        dtype: type of the numbers.
        fixed: whether vectors and spans are lists of fixed size; Spark knows none.
    """

    dim: int
    pooled: bool
    dtype: StoredType = "float32"
    fixed: bool = True

    @property
    def type(self) -> Any:
        """The Arrow type of a column of vectors."""
        arrow = _arrow()
        number = arrow.float16() if self.dtype == "float16" else arrow.float32()
        vector = arrow.list_(number, self.dim) if self.fixed else arrow.list_(number)
        return vector if self.pooled else arrow.list_(vector)

    @property
    def span_type(self) -> Any:
        """The Arrow type of the column that tells where each token stands."""
        arrow = _arrow()
        span = arrow.list_(arrow.int32(), 2) if self.fixed else arrow.list_(arrow.int32())
        return arrow.list_(span)

    def make(self, values: Sequence[NDArray[Any] | None]) -> Any:
        """Make a column.

        Args:
            values: for each row (dim,) if pooled, else (time, dim), in the type of the numbers;
                None for a row that has none.
        """
        arrow = _arrow()
        # A list of fixed size takes its room even where it is null.
        nothing = np.zeros((self.dim,) if self.pooled else (0, self.dim), self.dtype)
        rows = [nothing if value is None else value for value in values]
        joined = np.concatenate([nothing[:0].reshape(-1), *(row.reshape(-1) for row in rows)])
        missing = np.array([value is None for value in values], bool)
        mask = arrow.array(missing) if missing.any() else None
        if self.pooled:
            return self._vectors(arrow.array(joined), mask)
        ends = np.cumsum([0, *(len(row) for row in rows)])
        vectors = self._vectors(arrow.array(joined), None)
        return arrow.ListArray.from_arrays(arrow.array(ends, arrow.int32()), vectors, mask=mask)

    def _vectors(self, numbers: Any, mask: Any) -> Any:
        arrow = _arrow()
        if self.fixed:
            return arrow.FixedSizeListArray.from_arrays(numbers, self.dim, mask=mask)
        starts = np.arange(len(numbers) // self.dim + 1, dtype=np.int64) * self.dim
        offsets = arrow.array(starts, arrow.int32())
        return arrow.ListArray.from_arrays(offsets, numbers, mask=mask)


def _arrow() -> Any:
    return require("pyarrow", "parquet", "a column of vectors")

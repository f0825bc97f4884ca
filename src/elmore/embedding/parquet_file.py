"""Parquet: one row per sentence, compressed with zstd; and vectors as Arrow columns.

    number  int64                              of the sentence, from 0 over the complete input
    text    string                             only where sentences were split
    tokens  list<string>
    spans   list<fixed_size_list<int32, 2>>    where each token is; null if tokens were given
    vectors list<fixed_size_list<float, dim>>

All layers are columns `layer_0`, `layer_1`, …, each like `vectors`, so that one can be read without
the others. With pooling there is `vector`, fixed_size_list<float, dim>, or `layer_0`, … like it.
Numbers are float or halffloat. Rows are gathered into row groups of a bounded size, which is all
that is in memory; only a single longer sentence makes a larger one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from elmore.base.optional import require
from elmore.embedding.vector_files import Record, Settings, stored, utf8
from elmore.options import StoredType

# Bytes of vectors in a row group; a reader holds one at a time.
_GROUP_BYTES = 16 << 20
_GROUP_ROWS = 16_384


def write(stream: BinaryIO, records: Iterable[Record], settings: Settings) -> None:
    """Write records into an open file, in row groups."""
    arrow = require("pyarrow", "parquet", "writing parquet")
    columns = VectorColumns(
        dim=int(settings.shape[-1] or 0), pooled=settings.pooled, dtype=settings.dtype
    )
    names = ["vector" if settings.pooled else "vectors"]
    if settings.all_layers:
        names = [f"layer_{k}" for k in range(int(settings.shape[0] or 0))]
    fields = [("number", arrow.int64())]
    fields += [("text", arrow.string())] if settings.texts else []
    fields += [("tokens", arrow.list_(arrow.string())), ("spans", columns.span_type)]
    fields += [(name, columns.type) for name in names]
    schema = arrow.schema(fields)
    file = require("pyarrow.parquet", "parquet", "writing parquet").ParquetWriter(
        stream,
        schema,
        compression="zstd",
        # Words repeat, numbers do not: a dictionary of them would only be tried and dropped.
        use_dictionary=["tokens.list.element"],
        write_statistics=["number"],
    )
    try:
        first = settings.first
        for group in _groups(records, settings.dtype):
            table: dict[str, Any] = {
                "number": np.arange(first, first + len(group), dtype=np.int64),
                "text": [utf8(record.text) for record in group],
                "tokens": [[utf8(token) for token in record.tokens] for record in group],
                "spans": [record.spans for record in group],
            }
            arrays = [arrow.array(table[name], kind) for name, kind in fields if name in table]
            if settings.all_layers:
                layers = range(len(names))
                arrays += [columns.make([record.values[k] for record in group]) for k in layers]
            else:
                arrays.append(columns.make([record.values for record in group]))
            file.write_batch(arrow.record_batch(arrays, schema=schema))
            first += len(group)
        file.close()
    except BaseException:
        file.is_open = False  # or it writes its table of contents when it is collected
        raise


def _groups(records: Iterable[Record], dtype: StoredType) -> Iterator[list[Record]]:
    """Gather records, their values as they are stored, until they are enough for a row group."""
    group: list[Record] = []
    size = 0
    for record in records:
        values = stored(record, dtype)
        group.append(record._replace(values=values))
        size += values.nbytes
        if size >= _GROUP_BYTES or len(group) >= _GROUP_ROWS:
            yield group
            group, size = [], 0
    if group:
        yield group


# --------------------------------------------------------------------------- columns of vectors


@dataclass(frozen=True, kw_only=True)
class VectorColumns:
    """Makes columns of vectors without a Python object per number.

    Attributes:
        dim: size of a vector.
        pooled: whether a row has one vector, not a list of them.
        dtype: type of the numbers.
        fixed: whether vectors and spans are lists of fixed size; Spark has none.
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
        """The Arrow type of the column that says where each token is."""
        arrow = _arrow()
        span = arrow.list_(arrow.int32(), 2) if self.fixed else arrow.list_(arrow.int32())
        return arrow.list_(span)

    def make(self, values: Sequence[NDArray[Any] | None]) -> Any:
        """A column of rows that are (dim,) if pooled, else (time, dim), or None for null."""
        arrow = _arrow()
        # A list of fixed size needs its numbers even where it is null.
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

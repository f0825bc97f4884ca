"""A table with a column of texts in, the same rows with columns of vectors out.

What the Ray and Spark doors share; it knows Arrow and no engine. The columns that are added are
those of `elmore embed --format parquet`:

    vectors  a list of vectors, one for each token; `vector` if pooled
    layer_0, layer_1, ...    each like these, in their place where all layers are asked for
    tokens, spans            beside vectors of tokens, where a text was split into them

A null stays null. A sentence without tokens has an empty list of vectors, or zeros if pooled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from elmore._imports import require
from elmore._messages import shown
from elmore.config import BiLmConfig, Precision
from elmore.embedding.bulk.job import Job, value_shape
from elmore.embedding.layers import LayerChoice
from elmore.embedding.pooling import Pooling
from elmore.embedding.writers import Record
from elmore.embedding.writers.arrow_columns import VectorColumns
from elmore.embedding.writers.storing import stored
from elmore.errors import ConfigError, InputError
from elmore.formats.checkpoint import StoredType
from elmore.formats.detect import ModelPath, read_checkpoint
from elmore.integrations.loaded import load_once
from elmore.published.catalog import BUNDLED
from elmore.text.reading import Reading
from elmore.text.sentence import Sentence

if TYPE_CHECKING:
    from elmore.embedding.elmo import Elmo

__all__ = ["ColumnEmbedder", "ColumnJob", "JobOptions", "Kind", "column_kind", "load_model"]

# What a column holds: texts to be split into tokens, or lists of tokens.
Kind = Literal["text", "tokens"]
# Of vectors in a table that is handed on; what a worker holds beside its model and a window.
_PIECE_BYTES = 16 << 20


class JobOptions(TypedDict, total=False):
    """The attributes of a `ColumnJob`, as keywords of the functions that make one."""

    column: str
    model: ModelPath | None
    layers: LayerChoice | Literal["all"]
    pool: Pooling | None
    dtype: StoredType
    tokenized: bool
    threads: int
    device: str
    precision: Precision | None
    start: str
    token_vectors: tuple[str | Path, str | Path] | None
    batch_tokens: int | None


@dataclass(frozen=True, kw_only=True)
class ColumnJob:
    """What is asked of every worker; it can be sent to any machine that has elmore and the model.

    Attributes:
        column: with a sentence in each row: a string, or a list of tokens, taken as they are.
        model: what `Elmo.load` takes, the English model by default; every worker must find it
            under this name or path.
        layers: as in `Elmo.embed`, or "all".
        pool: one vector a sentence, as in `Elmo.encode`.
        dtype: how numbers are stored, "float32" or "float16".
        tokenized: strings are tokens separated by spaces.
        threads: processors that a worker uses.
        device: as in `Elmo.load`.
        precision: as in `Elmo.load`.
        start: as in `Elmo.load`.
        token_vectors: as in `Elmo.load`.
        batch_tokens: token budget of a batch.

    Raises:
        ConfigError: a bad option.
    """

    column: str = "text"
    model: ModelPath | None = None
    layers: LayerChoice | Literal["all"] = "mean"
    pool: Pooling | None = None
    dtype: StoredType = "float32"
    tokenized: bool = False
    threads: int = 1
    device: str = "cpu"
    precision: Precision | None = None
    start: str = "zeros"
    token_vectors: tuple[str | Path, str | Path] | None = None
    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        # Workers start in other folders than the program that calls them.
        object.__setattr__(self, "model", _anchored(BUNDLED if self.model is None else self.model))
        if self.token_vectors is not None:
            object.__setattr__(self, "token_vectors", _anchored(tuple(self.token_vectors)))
        if self.precision is not None and self.precision not in get_args(Precision):
            names = ", ".join(get_args(Precision))
            raise ConfigError(f"precision={self.precision!r}; use one of {names}")
        if self.start not in ("zeros", "warm"):
            raise ConfigError(f'start={self.start!r}; use "zeros" or "warm"')
        Job(  # which refuses the rest
            model=self.model or BUNDLED,
            layers=self.layers,
            pool=self.pool,
            dtype=self.dtype,
            threads=self.threads,
            batch_tokens=self.batch_tokens,
        )

    def added(self, kind: Kind, config: BiLmConfig | None = None) -> list[str]:
        """Name the columns that are added, in order.

        Args:
            kind: of the column.
            config: of the model; read from its files if not given.

        Raises:
            ConfigError: the model has not these layers.
            ModelNotFound: there is no such model here.
        """
        if config is None:
            config = read_checkpoint(self.model or BUNDLED).config
        value_shape(config, self.layers, self.pool)
        names = ["vectors" if self.pool is None else "vector"]
        if isinstance(self.layers, str) and self.layers == "all":
            names = [f"layer_{k}" for k in range(config.n_layers)]
        return [*_token_columns(self, kind), *names]

    def check(
        self, names: Sequence[str], kind: Kind, config: BiLmConfig | None = None
    ) -> list[str]:
        """Refuse columns with which no row could be embedded, before any worker starts.

        Args:
            names: the columns that there are.
            kind: of the column.
            config: as in `added`.

        Returns:
            The columns that are added.

        Raises:
            ConfigError: one of these would be there twice.
        """
        added = self.added(kind, config)
        taken = [name for name in added if name in names]
        if taken:
            raise ConfigError(
                f"there is a column '{shown(taken[0])}' already; drop or rename it, so that the "
                "vectors find their place"
            )
        return added

    def check_name(self, names: Sequence[str]) -> None:
        """Refuse a column that is not there.

        Args:
            names: the columns that there are.

        Raises:
            ConfigError: none or several have this name.
        """
        found = list(names).count(self.column)
        if found > 1:
            raise ConfigError(f"{found} columns are called '{shown(self.column)}'; rename one")
        if not found:
            there = shown(", ".join(names), 200)
            raise ConfigError(f"there is no column '{shown(self.column)}'; use one of {there}")


def column_kind(arrow_type: Any, column: str) -> Kind:
    """Tell what a column of an Arrow type holds.

    Raises:
        ConfigError: neither texts nor lists of strings.
    """
    types = require("pyarrow", "parquet", "a column").types
    if _is_string(types, arrow_type):
        return "text"
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    if any(test(arrow_type) for test in lists) and _is_string(types, arrow_type.value_type):
        return "tokens"
    # A column of which nothing is known yet but that it is empty.
    if types.is_null(arrow_type):
        return "text"
    raise ConfigError(
        f"column '{shown(column)}' is of type {shown(arrow_type)}; use one of strings, or of lists "
        "of strings for tokens"
    )


def load_model(job: ColumnJob) -> Elmo:
    """Load the model of a job in a worker process, which is the engine's own, once."""
    return load_once(
        job.model,
        device=job.device,
        precision=job.precision,
        threads=job.threads,
        start=job.start,  # type: ignore[arg-type]  # one of its words, as the job has checked
        token_vectors=job.token_vectors,
    )


class ColumnEmbedder:
    """Fills tables with the vectors of a model.

    Args:
        job: what to do.
        elmo: the model, as `load_model` gives it.
        fixed: whether vectors are lists of fixed size.
    """

    def __init__(self, job: ColumnJob, elmo: Elmo, *, fixed: bool = True) -> None:
        self.job, self.elmo = job, elmo
        self._arrow = require("pyarrow", "parquet", "a column of vectors")
        self._columns = VectorColumns(
            dim=self.elmo.dim, pooled=job.pool is not None, dtype=job.dtype, fixed=fixed
        )

    def tables(self, rows: Any) -> Iterator[Any]:
        """Embed the sentences of a table.

        Args:
            rows: an Arrow table or record batch.

        Returns:
            The same rows in the same order, with their vectors; in pieces of a bounded size.

        Raises:
            ConfigError: the column is not there, or of another type.
        """
        self.job.check_name(rows.schema.names)
        column = rows.column(self.job.column)
        kind = column_kind(column.type, self.job.column)
        names = self.job.check(rows.schema.names, kind, self.elmo.config)
        start = 0
        for arrays in self.columns(column):
            count = len(arrays[0])
            part = rows.slice(start, count)
            schema = rows.schema
            for name, array in zip(names, arrays, strict=True):
                schema = schema.append(self._arrow.field(name, array.type))
            yield type(rows).from_arrays([*part.columns, *arrays], schema=schema)
            start += count

    def columns(self, column: Any) -> Iterator[list[Any]]:
        """Embed the sentences of a column.

        Args:
            column: an Arrow array.

        Returns:
            The columns that are added, in pieces of a bounded size; one that is empty for an
            empty column.
        """
        from elmore.embedding.records import embed_records

        kind = column_kind(column.type, self.job.column)
        values = column.to_pylist()
        records = embed_records(
            self.elmo,
            self._sentences(values, kind),
            layers=self.job.layers,
            pool=self.job.pool,
            batch_tokens=self.job.batch_tokens,
        )
        piece: list[Record | None] = []
        size = 0
        for value in values:
            record = None if value is None else next(records)
            if record is not None:
                record = record._replace(values=stored(record, self.job.dtype))
                size += record.values.nbytes
            piece.append(record)
            if size >= _PIECE_BYTES:
                yield self._arrays(piece, kind)
                piece, size = [], 0
        if piece or not values:
            yield self._arrays(piece, kind)

    def _sentences(self, values: Sequence[Any], kind: Kind) -> Iterator[tuple[str, Sentence]]:
        checkpoint = self.elmo.checkpoint
        reading = Reading(tokenized=self.job.tokenized, tokenizer=checkpoint.tokenizer)
        for value in values:
            if value is None:
                continue
            if kind == "text":
                yield value, reading.sentence(value)
            elif None in value:
                raise InputError(
                    f"a list in column '{shown(self.job.column)}' holds a null among its tokens; "
                    "fill or drop it"
                )
            else:
                yield " ".join(value), Sentence(tuple(value))

    def _arrays(self, records: Sequence[Record | None], kind: Kind) -> list[Any]:
        """Make the columns of some rows, in the order of `ColumnJob.added`."""
        arrow = self._arrow
        arrays = []
        if _token_columns(self.job, kind):
            tokens = [record and list(record.tokens) for record in records]
            spans = [record and record.spans for record in records]
            arrays.append(arrow.array(tokens, arrow.list_(arrow.string())))
            arrays.append(arrow.array(spans, self._columns.span_type))
        values = [None if record is None else record.values for record in records]
        if isinstance(self.job.layers, str) and self.job.layers == "all":
            for k in range(self.elmo.n_layers):
                layer = [None if value is None else value[k] for value in values]
                arrays.append(self._columns.make(layer))
        else:
            arrays.append(self._columns.make(values))
        return arrays


def _token_columns(job: ColumnJob, kind: Kind) -> list[str]:
    """Name what must stand beside the vectors, or nobody could tell whose they are."""
    return ["tokens", "spans"] if kind == "text" and job.pool is None else []


def _is_string(types: Any, arrow_type: Any) -> bool:
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    tests = (types.is_string, types.is_large_string, types.is_string_view)
    return any(test(arrow_type) for test in tests)


def _anchored(paths: Any) -> Any:
    """Make the paths of files that are here absolute, and leave names alone."""
    if isinstance(paths, list | tuple):
        return tuple(_anchored(path) for path in paths)
    return os.path.abspath(paths) if os.path.exists(paths) else str(paths)

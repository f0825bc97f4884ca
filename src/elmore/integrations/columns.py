"""A table with a column of texts in, the same rows with columns of vectors out.

Shared by the Ray and Spark integrations; it imports Arrow, but neither of them. The columns that
are added are those of `elmore embed --format parquet`:

    vectors  a list of vectors, one per token; `vector` if pooled
    layer_0, layer_1, ...    like these, in their place, if all layers are asked for
    tokens, spans            with vectors of tokens, if a text was split into them

A null stays null. A sentence without tokens has an empty list of vectors, or zeros if pooled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from elmore.base.messages import shown
from elmore.base.optional import require
from elmore.config import BiLmConfig
from elmore.embedding.load import ModelPath, absolute, read_checkpoint
from elmore.embedding.parquet_file import VectorColumns
from elmore.embedding.results import value_shape
from elmore.embedding.stream import embed_records
from elmore.embedding.vector_files import Record, stored
from elmore.errors import ConfigError, InputError
from elmore.integrations.loaded import load_once
from elmore.options import Compute, ComputeOptions, Output, OutputOptions
from elmore.published.catalog import bundled_model
from elmore.text.reading import Reading
from elmore.text.segmenter import sendable
from elmore.text.tokenizer import Sentence

if TYPE_CHECKING:
    from elmore.elmo import Elmo

# What a column holds: texts to be split into tokens, or lists of tokens.
Kind = Literal["text", "tokens"]
# Vectors in a table that is handed on; what a worker holds in addition to its model and a window.
_CHUNK_BYTES = 16 << 20


class ColumnOptions(ComputeOptions, OutputOptions, total=False):
    """The attributes of a `ColumnJob`, as keywords of the functions that make one."""

    column: str
    model: ModelPath | None
    tokenized: bool


@dataclass(frozen=True, kw_only=True)
class ColumnJob(Compute, Output):
    """What is asked of every worker; it can be sent to any machine that has elmore and the model.

    Attributes:
        column: with a sentence in each row: a string, or a list of tokens, taken as they are.
        model: what `Elmo.load` takes, the English model by default; every worker must find it
            under this name or path.
        tokenized: strings are tokens separated by spaces.
        threads: processors that a worker uses.

    Raises:
        ConfigError: a bad option.
    """

    column: str = "text"
    model: ModelPath | None = None
    tokenized: bool = False
    # Not all processors: the engine starts one worker for each of them.
    threads: int | None = 1

    def __post_init__(self) -> None:
        Compute.__post_init__(self)
        Output.__post_init__(self)
        # The job is frozen for everybody else; here its values are settled.
        object.__setattr__(self, "tokenizer", sendable(self.tokenizer))
        # Workers start in other folders than the program that calls them.
        if self.model is not None:
            object.__setattr__(self, "model", absolute(self.model))

    def added(self, kind: Kind, config: BiLmConfig | None = None) -> list[str]:
        """The names of the columns that are added, in order.

        The config of the model is read from its files if not given.

        Raises:
            ConfigError: the model does not have these layers.
            ModelNotFound: there is no such model here.
        """
        if config is None:
            config = read_checkpoint(self.model or bundled_model()).config
        value_shape(config, self)  # refuses early
        names = ["vectors" if self.pool is None else "vector"]
        if self.all_layers:
            names = [f"layer_{k}" for k in range(config.n_layers)]
        return [*(("tokens", "spans") if self.with_tokens(kind) else ()), *names]

    def with_tokens(self, kind: Kind) -> bool:
        """Whether tokens are added too, or nobody could tell whose vectors these are."""
        return kind == "text" and self.pool is None

    def check(
        self, names: Sequence[str], kind: Callable[[], Kind], config: BiLmConfig | None = None
    ) -> list[str]:
        """Refuse a table that cannot be embedded, before any worker starts.

        `names` are the columns that exist. `kind` is called when the column is known to exist.

        Returns:
            The columns that are added.

        Raises:
            ConfigError: the column does not exist, or one that is added does.
        """
        if self.column not in names:
            there = shown(", ".join(names), 200)
            raise ConfigError(f"there is no column '{shown(self.column)}'; use one of {there}")
        added = self.added(kind(), config)
        taken = [name for name in added if name in names]
        if taken:
            raise ConfigError(
                f"there is a column '{shown(taken[0])}' already; drop or rename it, "
                "for the vectors are stored under that name"
            )
        return added


def column_kind(arrow_type: Any, column: str) -> Kind:
    """What a column of an Arrow type holds.

    Raises:
        ConfigError: neither texts nor lists of strings.
    """
    types = require("pyarrow", "parquet", "a column").types
    # A column of nothing but nulls has no other type yet.
    if _is_string(types, arrow_type) or types.is_null(arrow_type):
        return "text"
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    if any(test(arrow_type) for test in lists) and _is_string(types, arrow_type.value_type):
        return "tokens"
    raise ConfigError(
        f"column '{shown(column)}' is of type {shown(arrow_type)}; use one of strings, or of lists "
        "of strings for tokens"
    )


class ColumnEmbedder:
    """Fills tables with the vectors of a model; the class of Ray's actors.

    Args:
        job: what to do.
        elmo: the model; by default that of the job, loaded once per process.
        fixed: whether vectors are lists of fixed size.
    """

    def __init__(self, job: ColumnJob, elmo: Elmo | None = None, *, fixed: bool = True) -> None:
        self.job = job
        self.elmo = load_once(job.model, **job.options()) if elmo is None else elmo
        self._arrow = require("pyarrow", "parquet", "a column of vectors")
        self._columns = VectorColumns(
            dim=self.elmo.dim, pooled=job.pool is not None, dtype=job.dtype, fixed=fixed
        )

    def __call__(self, rows: Any) -> Iterator[Any]:
        """The rows of an Arrow table or record batch with their vectors, in order.

        Yields:
            Tables, or record batches, of a bounded size.

        Raises:
            ConfigError: the column does not exist, or has another type.
        """
        name = self.job.column
        names = self.job.check(
            rows.schema.names, lambda: column_kind(rows.column(name).type, name), self.elmo.config
        )
        start = 0
        for arrays in self.columns(rows.column(name)):
            count = len(arrays[0])
            schema = rows.schema
            for name, array in zip(names, arrays, strict=True):
                schema = schema.append(self._arrow.field(name, array.type))
            kept = rows.slice(start, count).columns
            yield type(rows).from_arrays([*kept, *arrays], schema=schema)
            start += count

    def columns(self, column: Any) -> Iterator[list[Any]]:
        """The columns that are added for an Arrow array, of a bounded size each.

        There is at least one of each, empty for an empty array, so that the types are known.
        """
        kind = column_kind(column.type, self.job.column)
        values = column.to_pylist()
        records = embed_records(self.elmo.engine, self._sentences(values, kind), self.job)
        chunk: list[Record | None] = []
        size = 0
        for value in values:
            # Nulls were left out of the stream, so records and values are paired again here.
            record = None if value is None else next(records)
            if record is not None:
                record = record._replace(values=stored(record, self.job.dtype))
                size += record.values.nbytes
            chunk.append(record)
            if size >= _CHUNK_BYTES:
                yield self._arrays(chunk, kind)
                chunk, size = [], 0
        if chunk or not values:
            yield self._arrays(chunk, kind)

    def _sentences(self, values: Sequence[Any], kind: Kind) -> Iterator[tuple[str, Sentence]]:
        reading = Reading(tokenized=self.job.tokenized, tokenizer=self.elmo.tokenize)
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
        """The columns of some rows, in the order of `ColumnJob.added`."""
        arrow = self._arrow
        arrays = []
        if self.job.with_tokens(kind):
            tokens = [record and list(record.tokens) for record in records]
            spans = [record and record.spans for record in records]
            arrays.append(arrow.array(tokens, arrow.list_(arrow.string())))
            arrays.append(arrow.array(spans, self._columns.span_type))
        values = [None if record is None else record.values for record in records]
        if not self.job.all_layers:
            return [*arrays, self._columns.make(values)]
        for k in range(self.elmo.n_layers):
            layer = [None if value is None else value[k] for value in values]
            arrays.append(self._columns.make(layer))
        return arrays


def _is_string(types: Any, arrow_type: Any) -> bool:
    one = arrow_type.value_type if types.is_dictionary(arrow_type) else arrow_type
    return any((types.is_string(one), types.is_large_string(one), types.is_string_view(one)))

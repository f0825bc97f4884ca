"""Spark: a DataFrame of sentences in, the same rows with their vectors out.

    vectors = embed_dataframe(spark.read.parquet("texts/"), column="text", pool="mean")
    vectors.write.parquet("vectors/")

Rows go to Python and back as Arrow batches. A Python worker process of Spark loads the model with
its first task and keeps it for the next ones. Spark repeats a task whose worker died.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Unpack

from elmore.base.optional import require
from elmore.errors import ConfigError
from elmore.integrations.columns import (
    ColumnEmbedder,
    ColumnJob,
    ColumnOptions,
    column_kind,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def embed_dataframe(df: DataFrame, **options: Unpack[ColumnOptions]) -> DataFrame:
    """Add columns of vectors to a DataFrame; the work is done when it is consumed.

    All columns are kept, and so are partitions and the order of rows in them. The vectors are
    those of `Elmo.embed` or, pooled, `Elmo.encode`, as `array<float>` in the columns of
    `elmore.integrations.columns`.

    Args:
        df: with a column of strings or of arrays of tokens.
        options: of `ColumnJob`: `column`, `model`, `layers`, `pool`, ...; set `spark.task.cpus` to
            `threads` where that is more than 1. Spark has no `dtype` but "float32".

    Raises:
        ConfigError: a bad option; no such column, or one of another type.
        ModelNotFound: there is no such model here.
    """
    job = ColumnJob(**options)
    types = _types()
    to_arrow = require("pyspark.sql.pandas.types", "spark", "embedding a DataFrame").to_arrow_type
    added = job.check(
        df.columns, lambda: column_kind(to_arrow(df.schema[job.column].dataType), job.column)
    )
    known = {
        "tokens": types.ArrayType(types.StringType()),
        "spans": types.ArrayType(types.ArrayType(types.IntegerType())),
    }
    vectors = _vector_type(job)
    fields = [types.StructField(name, known.get(name, vectors)) for name in added]
    return df.mapInArrow(arrow_function(job), types.StructType([*df.schema.fields, *fields]))


def embed_udf(**options: Unpack[ColumnOptions]) -> Any:
    """A function for expressions, an iterator Arrow UDF.

        df.select("*", embed_udf(pool="mean")("text").alias("vector"))

    Spark's `withColumn` would replace a column of that name without a word.

    Args:
        options: as in `embed_dataframe`, without `column`, which is the argument of what is made.

    Returns:
        A function of a column of strings or arrays of tokens; it returns `array<float>` if
        pooled, else `array<array<float>>` without the tokens.
    """
    if options.get("layers") == "all":
        raise ConfigError('layers="all" needs several columns; use embed_dataframe')
    if "column" in options:
        raise ConfigError("the column is the argument of the UDF: embed_udf(...)('text')")
    options["column"] = "of the UDF"
    job = ColumnJob(**options)
    _check_dtype(job)
    job.added("tokens")  # refuses early
    arrow = require("pyarrow", "spark", "an Arrow UDF")

    def embed(batches: Iterable[Any]) -> Iterator[Any]:
        embedder = ColumnEmbedder(job, fixed=False)
        for column in batches:
            for arrays in embedder.columns(column):
                yield arrays[-1]

    # arrow_udf finds out its kind from the hints, and pyarrow is known only here.
    arrays = Iterator[arrow.Array]  # type: ignore[name-defined]  # a module found at run time
    embed.__annotations__ = {"batches": arrays, "return": arrays}
    functions = require("pyspark.sql.functions", "spark", "an Arrow UDF")
    return functions.arrow_udf(embed, _vector_type(job))


def arrow_function(job: ColumnJob) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A function for a `mapInArrow` of your own; Spark has no `dtype` but "float32"."""
    _check_dtype(job)

    def embed(batches: Iterable[Any]) -> Iterator[Any]:
        # In the worker: what Spark pickles and sends names a model and does not hold it.
        embedder = ColumnEmbedder(job, fixed=False)
        for batch in batches:
            yield from embedder(batch)

    return embed


def _vector_type(job: ColumnJob) -> Any:
    """The Spark type of a column of vectors."""
    types = _types()
    vector = types.ArrayType(types.FloatType())
    return vector if job.pool is not None else types.ArrayType(vector)


def _check_dtype(job: ColumnJob) -> None:
    if job.dtype != "float32":
        raise ConfigError(f"dtype={job.dtype!r} but Spark has no such type; use 'float32'")


def _types() -> Any:
    return require("pyspark.sql.types", "spark", "embedding a Spark DataFrame")

"""Spark: a DataFrame of sentences in, the same rows with their vectors out.

    vectors = embed_dataframe(spark.read.parquet("texts/"), column="text", pool="mean")
    vectors.write.parquet("vectors/")

Rows go to Python and back as Arrow batches. A Python worker process of Spark loads the model with
its first task and keeps it for the next ones. Spark repeats a task whose worker died.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from elmore.base.messages import shown
from elmore.base.optional import require
from elmore.errors import ConfigError
from elmore.integrations.columns import (
    ColumnEmbedder,
    ColumnJob,
    ColumnOptions,
    Kind,
    check_folder,
    check_overlap,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["arrow_function", "embed_dataframe", "embed_parquet", "embed_udf"]

# The files that Spark writes into a folder of Parquet files; no others are replaced.
_OURS = re.compile(r"part-.*\.parquet|\.part-.*\.crc|_SUCCESS|\._SUCCESS\.crc")


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
    return _mapped(df, ColumnJob(**options))


def embed_parquet(
    spark: SparkSession,
    inputs: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    overwrite: bool = False,
    **options: Unpack[ColumnOptions],
) -> None:
    """Embed a column of Parquet files into a folder of such files.

    Args:
        spark: the session.
        inputs: files or folders, on any file system that Spark reads.
        out: the folder to create.
        overwrite: replace a folder of Spark's Parquet files; Spark refuses it otherwise.
        options: as in `embed_dataframe`.

    Raises:
        ConfigError: a bad option; no such column; the folder holds other files, or overlaps with
            the inputs.
    """
    job = ColumnJob(**options)
    paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    df = spark.read.parquet(*(str(path) for path in paths))
    if overwrite:  # else Spark refuses a folder that exists
        _check_output(spark, [*map(str, paths), *df.inputFiles()], out)
    mode = "overwrite" if overwrite else "errorifexists"
    _mapped(df, job).write.parquet(str(out), mode=mode, compression="zstd")


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


def _check_output(spark: SparkSession, inputs: Sequence[str], out: str | Path) -> None:
    """Refuse to let Spark delete its input, or a folder of something else."""
    context: Any = spark.sparkContext
    make_path = context._jvm.org.apache.hadoop.fs.Path

    def qualified(path: str) -> tuple[str, Any, Any]:
        made = make_path(path)
        system = made.getFileSystem(context._jsc.hadoopConfiguration())
        name = str(system.makeQualified(made).toString())
        return name.removeprefix("file://").removeprefix("file:"), system, made

    folder, system, made = qualified(str(out))
    check_overlap((qualified(path)[0] for path in inputs), folder)
    if system.exists(made):
        check_folder([one.getPath().getName() for one in system.listStatus(made)], _OURS, out)


def _mapped(df: DataFrame, job: ColumnJob) -> DataFrame:
    types = _types()
    added = job.check(df.columns, lambda: _kind(df.schema[job.column].dataType, job.column))
    known = {
        "tokens": types.ArrayType(types.StringType()),
        "spans": types.ArrayType(types.ArrayType(types.IntegerType())),
    }
    vectors = _vector_type(job)
    fields = [types.StructField(name, known.get(name, vectors)) for name in added]
    return df.mapInArrow(arrow_function(job), types.StructType([*df.schema.fields, *fields]))


def _kind(data_type: Any, column: str) -> Kind:
    types = _types()
    if isinstance(data_type, types.StringType):
        return "text"
    array = isinstance(data_type, types.ArrayType)
    if array and isinstance(data_type.elementType, types.StringType):
        return "tokens"
    raise ConfigError(
        f"column '{shown(column)}' is of type {data_type.simpleString()}; use one of strings, or "
        "of arrays of strings for tokens"
    )


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

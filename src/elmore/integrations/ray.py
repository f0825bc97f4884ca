"""Ray Data: a dataset of sentences in, the same rows with their vectors out.

    ds = embed_dataset(ray.data.read_parquet("texts/"), column="text", pool="mean")
    ds.write_parquet("vectors/")

Each worker is an actor that loads the model once. Ray starts another in the place of one that
dies, and gives it the batches that were not finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from elmore._imports import require
from elmore.errors import ConfigError
from elmore.integrations.columns import ColumnEmbedder, ColumnJob, JobOptions, Kind, column_kind

if TYPE_CHECKING:
    from ray.data import Dataset

__all__ = ["BATCH_ROWS", "EmbedRows", "embed_dataset", "embed_parquet"]

# One window of a stream: sorted by length, these fill batches of nearly equal sentences.
BATCH_ROWS = 1024
# Share of a processor for a task that only moves data.
_LITTLE = 0.25


class EmbedRows:
    """The class of the actors, for a `map_batches` of your own.

        ds.map_batches(
            EmbedRows,
            fn_constructor_args=[ColumnJob(column="text", pool="mean")],
            batch_format="pyarrow",
            batch_size=BATCH_ROWS,
            num_cpus=1,
            concurrency=4,
        )

    Args:
        job: what to do; `num_cpus` should be its `threads`.
    """

    def __init__(self, job: ColumnJob) -> None:
        self._embedder = ColumnEmbedder(job)

    def __call__(self, rows: Any) -> Iterator[Any]:
        """The rows of an Arrow table with their vectors, as tables of a bounded size."""
        yield from self._embedder.tables(rows)


def embed_dataset(
    ds: Dataset, *, workers: int | None = None, **options: Unpack[JobOptions]
) -> Dataset:
    """Add columns of vectors to a dataset; the work is done when it is consumed.

    All columns are kept, and rows stay in order (the dataset's context is set to preserve it). The
    vectors are those of `Elmo.embed` or, pooled, `Elmo.encode`, in the columns of
    `elmore.integrations.columns`.

    Args:
        ds: with a column of strings or of lists of tokens.
        workers: maximum number of actors; as many as the cluster has room for by default. Ray
            starts with one, and keeps a processor for the tasks that read.
        options: of `ColumnJob`: `column`, `model`, `layers`, `pool`, ...; `threads` is also what
            Ray reserves for an actor.

    Raises:
        ConfigError: a bad option; no such column, or one of another type.
        ModelNotFound: there is no such model here.
    """
    return _mapped(ds, ColumnJob(**options), workers)


def embed_parquet(
    inputs: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    **options: Unpack[JobOptions],
) -> None:
    """Embed a column of Parquet files into a folder of such files.

    Sorted by name, the files hold the rows in the order of the input.

    Args:
        inputs: files or folders, on any file system that Ray reads.
        out: the folder to create.
        workers: as in `embed_dataset`.
        overwrite: replace a folder that exists.
        options: as in `embed_dataset`.

    Raises:
        ConfigError: a bad option; no such column; the folder is there.
    """
    job = ColumnJob(**options)
    if not overwrite and Path(out).exists():
        raise ConfigError(f"'{out}' exists; choose another folder or pass overwrite=True")
    data = _ray_data()
    paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    # Reading and writing wait for the disk, and must find room beside the actors.
    ds = data.read_parquet([str(path) for path in paths], num_cpus=_LITTLE)
    _mapped(ds, job, workers).write_parquet(
        str(out),
        mode="overwrite" if overwrite else "error",
        ray_remote_args={"num_cpus": _LITTLE},
        compression="zstd",
    )


def _mapped(ds: Dataset, job: ColumnJob, workers: int | None) -> Dataset:
    data = _ray_data()
    if workers is not None and workers < 1:
        raise ConfigError(f"workers={workers}; use 1 or more")
    _check(ds, job)
    _check_room(job.threads or 1)
    ds.context.execution_options.preserve_order = True
    return ds.map_batches(
        EmbedRows,
        fn_constructor_args=[job],
        batch_size=BATCH_ROWS,
        batch_format="pyarrow",
        compute=data.ActorPoolStrategy(min_size=1, max_size=workers),
        num_cpus=job.threads or 1,
    )


def _check(ds: Dataset, job: ColumnJob) -> None:
    """Refuse on the driver what no worker could do."""
    schema = ds.schema()
    if schema is None:  # no rows, no columns
        job.added("text")
        return
    base = schema.base_schema

    def kind() -> Kind:
        # Of rows in pandas only the names are known before they are read, so assume the fewest
        # columns.
        if not isinstance(base, require("pyarrow", "ray", "Ray Data").Schema):
            return "tokens"
        return column_kind(base.field(job.column).type, job.column)

    job.check(schema.names, kind)


def _check_room(threads: int) -> None:
    """Refuse what Ray would wait for forever: a worker that leaves no processor to read with."""
    there = require("ray", "ray", "embedding a Ray dataset").cluster_resources().get("CPU", 0)
    if 0 < there <= threads:  # a cluster that grows on demand may have none yet
        raise ConfigError(
            f"Ray has {there:g} processors, and a worker of threads={threads} leaves none to read "
            f"with; use fewer threads or ray.init(num_cpus={threads + 1})"
        )


def _ray_data() -> Any:
    return require("ray.data", "ray", "embedding a Ray dataset")

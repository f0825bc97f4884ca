"""Ray Data: a dataset of sentences in, the same rows with their vectors out.

    ds = embed_dataset(ray.data.read_parquet("texts/"), column="text", pool="mean")
    ds.write_parquet("vectors/")

Each worker is an actor that loads the model once. Ray starts another in the place of one that
dies, and gives it the batches that were not finished. The class of the actors can be used in a
`map_batches` of your own:

    ds.map_batches(
        ColumnEmbedder,
        fn_constructor_args=[ColumnJob(column="text", pool="mean")],
        batch_format="pyarrow",
        batch_size=BATCH_ROWS,
        num_cpus=1,  # the job's threads
        concurrency=4,
    )
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from elmore.base.optional import require
from elmore.errors import ConfigError
from elmore.integrations.columns import (
    ColumnEmbedder,
    ColumnJob,
    ColumnOptions,
    Kind,
    column_kind,
)

if TYPE_CHECKING:
    from ray.data import Dataset

# One window of a stream: sorted by length, these fill batches of nearly equal sentences.
BATCH_ROWS = 1024


def embed_dataset(
    ds: Dataset, *, workers: int | None = None, **options: Unpack[ColumnOptions]
) -> Dataset:
    """Add columns of vectors to a dataset; the work is done when it is consumed.

    All columns are kept, and rows stay in the order in which Ray reads them (the dataset's context
    is set to preserve it). Ray reads the row groups of Parquet files in no promised order; sort by
    a column where that matters. The vectors are those of `Elmo.embed` or, pooled, `Elmo.encode`, in
    the columns of `elmore.integrations.columns`.

    Args:
        ds: with a column of strings or of lists of tokens.
        workers: maximum number of actors; as many as fit into the cluster by default. Ray
            starts with one, and keeps a processor for the tasks that read.
        options: of `ColumnJob`: `column`, `model`, `layers`, `pool`, ...; `threads` is also what
            Ray reserves for an actor.

    Raises:
        ConfigError: a bad option; no such column, or one of another type.
        ModelNotFound: there is no such model here.
    """
    job = ColumnJob(**options)
    _check(ds, job)
    threads = job.threads or 1
    if workers is not None and workers < 1:
        raise ConfigError(f"workers={workers}; use 1 or more")
    there = require("ray", "ray", "embedding a Ray dataset").cluster_resources().get("CPU", 0)
    # Ray would wait forever for a worker that leaves no processor to read with.
    if 0 < there <= threads:  # a cluster that grows on demand may have none yet
        raise ConfigError(
            f"Ray has {there:g} processors, and a worker of threads={threads} leaves none to read "
            f"with; use fewer threads or ray.init(num_cpus={threads + 1})"
        )
    ds.context.execution_options.preserve_order = True
    data = require("ray.data", "ray", "embedding a Ray dataset")
    return ds.map_batches(
        ColumnEmbedder,
        fn_constructor_args=[job],
        batch_size=BATCH_ROWS,
        batch_format="pyarrow",
        compute=data.ActorPoolStrategy(min_size=1, max_size=workers),
        num_cpus=threads,
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

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

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

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
# A row group of a Parquet file (an Arrow fragment), and the schema to read it with.
_Piece = tuple[Any, Any]


def embed_dataset(
    ds: Dataset, *, workers: int | None = None, **options: Unpack[ColumnOptions]
) -> Dataset:
    """Add columns of vectors to a dataset; the work is done when it is consumed.

    All columns are kept, and rows stay in the order in which Ray reads them (the dataset's context
    is set to preserve it). Ray reads the row groups of Parquet files in no promised order; use
    `embed_parquet` where that matters. The vectors are those of `Elmo.embed` or, pooled,
    `Elmo.encode`, in the columns of `elmore.integrations.columns`.

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
    _check_workers(workers, job.threads or 1)
    ds.context.execution_options.preserve_order = True
    return _mapped(ds, ColumnEmbedder, [job], BATCH_ROWS, workers)


def _mapped(ds: Dataset, actor: Any, args: list[Any], rows: int, workers: int | None) -> Dataset:
    """What the actors make of a dataset; the first of their arguments is the job."""
    return ds.map_batches(
        actor,
        fn_constructor_args=args,
        batch_size=rows,
        batch_format="pyarrow",
        compute=_ray_data().ActorPoolStrategy(min_size=1, max_size=workers),
        num_cpus=args[0].threads or 1,
    )


def embed_parquet(
    inputs: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    workers: int | None = None,
    **options: Unpack[ColumnOptions],
) -> None:
    """Embed a column of Parquet files into a folder of such files, one for each row group.

    Sorted by name, the files hold the rows in the order of the input: one file after the other,
    those of a folder by name.

    Args:
        inputs: files or folders; paths, or addresses that Arrow reads (s3://, gs://, hdfs://).
        out: the folder to create.
        workers: as in `embed_dataset`.
        options: as in `embed_dataset`.

    Raises:
        ConfigError: a bad option; no such column; the folder exists.
        OSError, ValueError: Arrow cannot read the input.
    """
    job = ColumnJob(**options)
    _check_workers(workers, job.threads or 1)
    paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    target, folder = _file_system(out)
    pieces = [piece for path in paths for piece in _pieces(path, job)]
    if target.get_file_info(folder).type != _arrow("fs").FileType.NotFound:
        raise ConfigError(f"'{out}' exists; choose another folder")
    target.create_dir(folder, recursive=True)
    # Ray packs row groups into its read tasks by size, in no order, whatever `preserve_order` says.
    # So a task here is one row group, and writes the file that has its number.
    numbers = _ray_data().from_items([{"piece": number} for number in range(len(pieces))])
    tasks = numbers.repartition(len(pieces))
    _mapped(tasks, _EmbedPieces, [job, pieces, target, folder], 1, workers).materialize()


class _EmbedPieces:
    """The class of the actors of `embed_parquet`: each piece becomes one file."""

    def __init__(self, job: ColumnJob, pieces: Sequence[_Piece], target: Any, folder: str) -> None:
        self._embedder = ColumnEmbedder(job)
        self._pieces, self._target, self._folder = pieces, target, folder

    def __call__(self, numbers: Any) -> Any:
        """Embed the pieces of these numbers, and return the numbers."""
        for number in numbers["piece"].to_pylist():
            name = f"{self._folder}/{number:06d}.parquet"
            # Renamed when complete. After a death the same piece writes the same names again.
            with self._target.open_output_stream(f"{name}.partial") as stream:
                self._write(self._pieces[number], stream)
            self._target.move(f"{name}.partial", name)
        return numbers

    def _write(self, piece: _Piece, stream: Any) -> None:
        fragment, schema = piece
        # Without rows, so that the columns are known even if there are none.
        [empty] = self._embedder(schema.empty_table())
        # With threads of its own Arrow would read far ahead.
        batches = fragment.to_batches(schema=schema, batch_size=BATCH_ROWS, use_threads=False)
        with _arrow("parquet").ParquetWriter(stream, empty.schema, compression="zstd") as writer:
            for batch in batches:
                for table in self._embedder(batch) if batch.num_rows else ():
                    writer.write(table)


def _pieces(path: str | Path, job: ColumnJob) -> list[_Piece]:
    """The row groups of a file, or of the files of a folder, in order."""
    system, place = _file_system(path)
    found = _arrow("dataset").dataset(
        place, filesystem=system, format="parquet", partitioning="hive", partition_base_dir=place
    )
    job.check(found.schema.names, lambda: _kind_in(found.schema, job.column))
    files = sorted(found.get_fragments(), key=lambda one: one.path)
    groups = [group for file in files for group in file.split_by_row_group() or [file]]
    return [(group, found.schema) for group in groups]


def _kind_in(schema: Any, column: str) -> Kind:
    return column_kind(schema.field(column).type, column)


def _file_system(path: str | Path) -> tuple[Any, str]:
    """The Arrow file system of a path or address, and the path in it."""
    place = str(path) if "://" in str(path) else os.path.abspath(path)
    system, inside = _arrow("fs").FileSystem.from_uri(place)
    return system, inside


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
        return _kind_in(base, job.column)

    job.check(schema.names, kind)


def _check_workers(workers: int | None, threads: int) -> None:
    """Refuse what Ray would wait for forever: a worker that leaves no processor to read with."""
    if workers is not None and workers < 1:
        raise ConfigError(f"workers={workers}; use 1 or more")
    there = require("ray", "ray", "embedding a Ray dataset").cluster_resources().get("CPU", 0)
    if 0 < there <= threads:  # a cluster that grows on demand may have none yet
        raise ConfigError(
            f"Ray has {there:g} processors, and a worker of threads={threads} leaves none to read "
            f"with; use fewer threads or ray.init(num_cpus={threads + 1})"
        )


def _arrow(module: str) -> Any:
    return require(f"pyarrow.{module}", "ray", "Parquet files")


def _ray_data() -> Any:
    return require("ray.data", "ray", "embedding a Ray dataset")

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
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
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
    column_kind,
)

if TYPE_CHECKING:
    from ray.data import Dataset

__all__ = ["BATCH_ROWS", "embed_dataset", "embed_parquet"]

# One window of a stream: sorted by length, these fill batches of nearly equal sentences.
BATCH_ROWS = 1024
# Rows in a task of `embed_parquet`, if the row groups allow it: a minute or two of work.
_PIECE_ROWS = 64 * BATCH_ROWS
# The files that `embed_parquet` writes; it replaces no others.
_OURS = re.compile(r"\d{6,}\.parquet(\.partial)?")
# Some row groups of a Parquet file (an Arrow fragment), and the schema to read them with.
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
    overwrite: bool = False,
    **options: Unpack[ColumnOptions],
) -> None:
    """Embed a column of Parquet files into a folder of such files.

    Sorted by name, the files hold the rows in the order of the input: one file after the other,
    those of a folder by name. Each has about 65,000 rows, or one row group if that is larger.

    Args:
        inputs: files or folders; paths, or addresses that Arrow reads (s3://, gs://, hdfs://).
        out: the folder to create.
        workers: as in `embed_dataset`.
        overwrite: replace the files of an earlier call in a folder that exists.
        options: as in `embed_dataset`.

    Raises:
        ConfigError: a bad option; no such column or file; the folder exists, holds other files,
            or overlaps with the inputs.
    """
    job = ColumnJob(**options)
    _check_workers(workers, job.threads or 1)
    paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    target, folder = _file_system(out)
    systems = [_file_system(path) for path in paths]
    check_overlap([place for system, place in systems if system.equals(target)], folder)
    pieces = _pieces(paths, job)
    _make_folder(target, folder, out, overwrite=overwrite)
    # Ray packs row groups into its read tasks by size, in no order, whatever `preserve_order` says.
    # So a task here is some row groups of one file, and writes the file that has its number.
    numbers = _ray_data().from_items([{"piece": number} for number in range(len(pieces))])
    tasks = numbers.repartition(len(pieces))
    _mapped(tasks, _EmbedPieces, [job, pieces, target, folder], 1, workers).materialize()


class _EmbedPieces:
    """The class of the actors of `embed_parquet`: each piece becomes one file."""

    def __init__(self, job: ColumnJob, pieces: Sequence[_Piece], target: Any, folder: str) -> None:
        self._embedder = ColumnEmbedder(job)
        self._pieces, self._target, self._folder = pieces, target, folder
        self._parquet = require("pyarrow.parquet", "ray", "Parquet files")

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
        tables = (table for batch in _batches(*piece) for table in self._embedder(batch))
        first = next(tables)  # there is one, perhaps without rows
        with self._parquet.ParquetWriter(stream, first.schema, compression="zstd") as writer:
            for table in chain([first], tables):
                writer.write(table)


def _pieces(inputs: Sequence[str | Path], job: ColumnJob) -> list[_Piece]:
    """The row groups of all files, in order: in pieces of about _PIECE_ROWS rows."""
    dataset = require("pyarrow.dataset", "ray", "Parquet files")
    arrow = require("pyarrow", "ray", "Parquet files")
    pieces: list[_Piece] = []
    for path in inputs:
        system, place = _file_system(path)
        files = _parquet_files(system, place, path)
        try:
            found = dataset.dataset(
                files,
                filesystem=system,
                format="parquet",
                partitioning="hive",
                partition_base_dir=place,
            )
            kind = partial(_kind_in, found.schema, job.column)
            job.check(found.schema.names, kind)
            for fragment in sorted(found.get_fragments(), key=lambda one: one.path):
                pieces += [(part, found.schema) for part in _parts(fragment)]
        except (arrow.ArrowInvalid, OSError) as error:
            raise ConfigError(
                f"'{shown(path)}' cannot be read as Parquet: {shown(error, 100)}; check the files"
            ) from None
    return pieces


def _parts(fragment: Any) -> Iterator[Any]:
    """A file, divided between row groups."""
    groups: list[int] = []
    rows = 0
    for group in fragment.row_groups:
        if groups and rows + group.num_rows > _PIECE_ROWS:
            yield fragment.subset(row_group_ids=groups)
            groups, rows = [], 0
        groups.append(group.id)
        rows += group.num_rows
    yield fragment.subset(row_group_ids=groups)


def _batches(fragment: Any, schema: Any) -> Iterator[Any]:
    """The rows of a piece, a window each time; one without rows if it has none."""
    empty = True
    # With threads of its own Arrow would read far ahead.
    for batch in fragment.to_batches(schema=schema, batch_size=BATCH_ROWS, use_threads=False):
        if batch.num_rows:
            empty = False
            yield batch
    if empty:
        arrow = require("pyarrow", "ray", "Parquet files")
        yield arrow.RecordBatch.from_pylist([], schema=schema)


def _kind_in(schema: Any, column: str) -> Kind:
    return column_kind(schema.field(column).type, column)


def _file_system(path: str | Path) -> tuple[Any, str]:
    """The Arrow file system of a path or address, and the path in it."""
    fs = require("pyarrow.fs", "ray", "Parquet files")
    text = str(path)
    if "://" in text:
        try:
            system, place = fs.FileSystem.from_uri(text)
        except (ValueError, OSError) as error:
            raise ConfigError(
                f"'{shown(text)}' is not an address that Arrow reads: {shown(error, 80)}; use a "
                "path or s3://, gs://, hdfs://"
            ) from None
        return system, str(place)
    return fs.LocalFileSystem(), Path(os.path.abspath(text)).as_posix()


def _parquet_files(system: Any, place: str, path: str | Path) -> list[str]:
    """A file, or all Parquet files of a folder, sorted."""
    fs = require("pyarrow.fs", "ray", "Parquet files")
    info = system.get_file_info(place)
    if info.type == fs.FileType.NotFound:
        raise ConfigError(f"'{shown(path)}' does not exist; check the path")
    if info.is_file:
        return [place]
    inside = system.get_file_info(fs.FileSelector(place, recursive=True))
    files = sorted(
        one.path
        for one in inside
        if one.is_file and one.extension == "parquet" and not one.base_name.startswith(("_", "."))
    )
    if not files:
        raise ConfigError(f"'{shown(path)}' holds no .parquet files; check the path")
    return files


def _make_folder(system: Any, folder: str, out: str | Path, *, overwrite: bool) -> None:
    fs = require("pyarrow.fs", "ray", "Parquet files")
    kind = system.get_file_info(folder).type
    if kind != fs.FileType.NotFound:
        if not overwrite or kind != fs.FileType.Directory:
            raise ConfigError(f"'{out}' exists; choose another folder or pass overwrite=True")
        there = system.get_file_info(fs.FileSelector(folder))
        check_folder([one.base_name for one in there], _OURS, out)
        for one in there:
            system.delete_file(one.path)
    system.create_dir(folder, recursive=True)


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


def _ray_data() -> Any:
    return require("ray.data", "ray", "embedding a Ray dataset")

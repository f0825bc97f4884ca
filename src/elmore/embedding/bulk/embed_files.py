"""Text files in, a folder of shards with their vectors out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from elmore._progress import SILENT, Progress
from elmore.config import Precision
from elmore.embedding.bulk.folder import BulkFolder, BulkResult, ShardRecord, run_facts
from elmore.embedding.bulk.job import SHARD_BYTES, Job, value_shape
from elmore.embedding.bulk.processes import Pool
from elmore.embedding.bulk.shards import cut_shards, inspect_input
from elmore.embedding.layers import LayerChoice
from elmore.embedding.pooling import Pooling
from elmore.embedding.reading import Counts, Errors, TextReader
from elmore.errors import InputError
from elmore.formats.checkpoint import StoredType
from elmore.formats.detect import ModelPath, read_checkpoint

__all__ = ["embed_files", "run_job"]


def embed_files(
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    model: ModelPath,
    format: str = "parquet",
    layers: LayerChoice | Literal["all"] = "mean",
    pool: Pooling | None = None,
    dtype: StoredType = "float32",
    tokenized: bool = False,
    split_sentences: bool = False,
    errors: Errors = "strict",
    limit: int | None = None,
    workers: int = 1,
    threads: int = 1,
    device: str = "cpu",
    precision: Precision | None = None,
    start: str = "zeros",
    token_vectors: tuple[str | Path, str | Path] | None = None,
    batch_tokens: int | None = None,
    shard_bytes: int = SHARD_BYTES,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> BulkResult:
    """Embed text files with several processes into a folder of shards.

    Stopped and called again, it goes on where it was. The files of the folder are the same bytes
    for any number of workers and any interruption: shards are cut by the text alone, every shard
    starts with an empty word cache, and `threads` is what each process uses.

    Args:
        inputs: files, plain or packed (gz, bz2, xz, zst), read in this order.
        out: the folder to make.
        model: what `Elmo.load` takes.
        format: of the shards: "parquet", "safetensors", "hdf5", "npz" or "jsonl".
        layers: as in `Elmo.embed`, or "all".
        pool: one vector a sentence, as in `Elmo.encode`.
        dtype: how numbers are stored, "float32" or "float16".
        tokenized: lines are tokens separated by spaces.
        split_sentences: lines are running text, with blank lines between paragraphs.
        errors: what to do with lines that are not UTF-8.
        limit: stop after so many sentences.
        workers: processes.
        threads: processors that each of them uses.
        device: as in `Elmo.load`.
        precision: as in `Elmo.load`.
        start: as in `Elmo.load`.
        token_vectors: as in `Elmo.load`.
        batch_tokens: token budget of a batch.
        shard_bytes: a shard ends with the sentence that reaches so many bytes of text.
        overwrite: start anew in a folder that holds an earlier run.
        progress: told the number of sentences.

    Raises:
        ResumeError: the folder holds a run with other settings, inputs or model.
        InputError: nothing to read, or not UTF-8.
        ConfigError: a bad option, or a folder that is not ours.
    """
    job = Job(
        model=model,
        format=format,
        layers=layers,
        pool=pool,
        dtype=dtype,
        tokenized=tokenized,
        split_sentences=split_sentences,
        errors=errors,
        limit=limit,
        batch_tokens=batch_tokens,
        shard_bytes=shard_bytes,
        threads=threads,
        device=device,
        precision=precision,
        start=start,
        token_vectors=token_vectors,
    )
    return run_job(job, inputs, out, workers=workers, overwrite=overwrite, progress=progress)


def run_job(
    job: Job,
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    workers: int = 1,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> BulkResult:
    """Do what `embed_files` does for a job that is made already."""
    paths = [Path(path) for path in ([inputs] if isinstance(inputs, str | Path) else inputs)]
    if not paths:
        raise InputError("no input files; name at least one text file")
    value_shape(read_checkpoint(job.model).config, job.layers, job.pool)  # refuses early
    out = Path(os.path.abspath(out))
    with (
        BulkFolder.opened(out, job.format, overwrite=overwrite) as folder,
        Pool(job, workers) as processes,
    ):
        processes.open()
        files = [inspect_input(path) for path in paths]
        described = [
            {"path": str(file.path), "size": file.size, "sha256": file.sha256} for file in files
        ]
        done = folder.resume(run_facts(job.settings(), processes.start(), described))
        reader = TextReader(split_sentences=job.split_sentences, errors=job.errors)
        read = Counts()

        def requests() -> Iterator[tuple[dict[str, Any], list[str]]]:
            shards = cut_shards(files, reader, read, shard_bytes=job.shard_bytes, limit=job.limit)
            for shard in shards:
                if shard.number in done:
                    progress.update(len(shard.texts))
                    continue
                path = str(folder.shard(shard.number))
                place = {"number": shard.number, "first": shard.first, "path": path}
                yield place, shard.texts

        for request, reply in processes.map(requests()):
            folder.add(
                ShardRecord(
                    number=request["number"],
                    file=Path(request["path"]).name,
                    first=request["first"],
                    **reply,
                )
            )
            progress.update(reply["sentences"])
        return folder.finish(read)

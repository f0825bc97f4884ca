"""Text files in, a folder of shards with their vectors out."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from elmore.base.io import open_checked, open_text, sha256_stream
from elmore.base.messages import SILENT, Progress, shown
from elmore.base.pool import Pool
from elmore.bulk.job import Job, JobOptions, start_embedder
from elmore.bulk.output_folder import BulkResult, ShardRecord, finish, opened, resume
from elmore.embedding.load import ModelPath, read_checkpoint
from elmore.embedding.results import value_shape
from elmore.embedding.vector_files import VECTOR_FORMATS
from elmore.errors import InputError
from elmore.text.reading import Counts
from elmore.text.records import Text, as_text


def embed_files(
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    model: ModelPath,
    workers: int = 1,
    overwrite: bool = False,
    progress: Progress = SILENT,
    **options: Unpack[JobOptions],
) -> BulkResult:
    """Embed text files with several processes into a folder of shards.

    If it is interrupted, call it again to resume. The files in the folder have the same bytes for
    any number of workers and any interruption: where a shard ends depends on the text alone, and
    no vector depends on what was computed before.

    Args:
        inputs: files, plain or compressed (gz, bz2, xz, zst), read in this order.
        out: the folder to create.
        model: what `Elmo.load` takes.
        workers: processes.
        overwrite: start again in a folder that holds an earlier run.
        progress: counts sentences.
        options: the attributes of `Job`: `format`, `layers`, `pool`, `dtype`, `tokenized`,
            `split_sentences`, `column`, `conllu`, `errors`, `limit`, `threads`, `device`,
            `precision`, `start`, `batch_tokens`, `shard_bytes`, `tokenizer`.

    Raises:
        ResumeError: the folder holds a run with other settings, inputs or model.
        InputError: nothing to read, or not UTF-8.
        ConfigError: a bad option, or a folder that is not ours.
    """
    job = Job(model=model, **options)
    paths = [Path(path) for path in ([inputs] if isinstance(inputs, str | Path) else inputs)]
    if not paths:
        raise InputError("no input files; name at least one text file")
    checkpoint = read_checkpoint(job.model)
    value_shape(checkpoint.config, job)  # refuses early
    if job.tokenizer is None and not job.tokenized:
        checkpoint.warn_of_tokenizer()
    # Libraries read these when they are loaded. The count must not depend on the number of
    # workers, or the last bits of the vectors might.
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    with (
        opened(Path(os.path.abspath(out))) as folder,
        Pool(
            start_embedder,
            workers,
            setup={"job": job},
            environment=dict.fromkeys(names, str(job.threads or 1)),
        ) as pool,
    ):
        files = [inspect_input(path) for path in paths]  # while the workers load the model
        facts = {"settings": job.settings(), **pool.facts(), "inputs": [f.facts() for f in files]}
        done = resume(folder, facts, overwrite=overwrite)
        earlier, read = set(done), Counts()

        def requests() -> Iterator[dict[str, Any]]:
            for shard in cut_shards(files, job, read, job.limit):
                if shard.number in earlier:  # read all the same, to find where the next one starts
                    progress.update(len(shard.texts))
                    continue
                file = f"shard-{shard.number:06d}{VECTOR_FORMATS[job.format].suffixes[0]}"
                place = {"number": shard.number, "first": shard.first, "file": file}
                yield {**place, "folder": folder.path, "texts": shard.texts}

        for request, reply in pool.map(requests()):
            record = ShardRecord(**{k: request[k] for k in ("number", "first", "file")}, **reply)
            done[record.number] = record
            folder.add(record)
            progress.update(record.sentences)
        return finish(folder, facts, done, read)


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file to be read; its size and SHA-256 are those of the bytes as stored."""

    path: Path
    size: int
    sha256: str
    changed: int  # nanoseconds

    def facts(self) -> dict[str, str | int]:
        """What the manifest says about it; a copy with another time is the same input."""
        return {"path": str(self.path), "size": self.size, "sha256": self.sha256}

    def check_unchanged(self) -> None:
        """Refuse a file that was written to after it was inspected."""
        status = os.stat(self.path)
        if (status.st_size, status.st_mtime_ns) != (self.size, self.changed):
            raise InputError(
                f"'{shown(self.path, 140)}' changed while it was being read; run it again with "
                "--force"
            )


@dataclass(frozen=True)
class TextShard:
    """Sentences that one process embeds into one file; `first` is the number of the first.

    `lines` are the numbers of their lines in the file, as `Reading.texts` counts them.
    """

    number: int
    first: int
    texts: list[Text]
    lines: list[int]


def inspect_input(path: Path) -> InputFile:
    """The size and SHA-256 of a file."""
    with open_checked(path, what="input") as stream:
        status = os.fstat(stream.fileno())
        sha256 = sha256_stream(stream)
    return InputFile(path=path, size=status.st_size, sha256=sha256, changed=status.st_mtime_ns)


def cut_shards(
    files: Sequence[InputFile], job: Job, counts: Counts, limit: int | None
) -> Iterator[TextShard]:
    """Divide the sentences of files into shards, in order.

    Shards depend on the files, the job and the `limit` of sentences alone. A shard may hold the
    end of a file and the start of the next; a sentence is never divided. Lines that are not UTF-8
    are counted in `counts`.
    """
    texts: list[Text] = []
    lines: list[int] = []
    number = first = size = 0
    for line, text in itertools.islice(_texts(files, job, counts), limit):
        texts.append(text)
        lines.append(line)
        plain = as_text(text)
        size += len(plain) + 1 if plain.isascii() else len(plain.encode("utf-8", "replace")) + 1
        if size >= job.shard_bytes:
            yield TextShard(number, first, texts, lines)
            number, first, size, texts, lines = number + 1, first + len(texts), 0, [], []
    if texts:
        yield TextShard(number, first, texts, lines)


def _texts(files: Sequence[InputFile], job: Job, counts: Counts) -> Iterator[tuple[int, Text]]:
    reading = job.reading()
    for file in files:
        with open_text(file.path, what="input") as stream:
            yield from reading.texts(stream, str(file.path), counts)
        file.check_unchanged()

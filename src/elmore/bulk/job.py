"""A bulk job: what is asked for, and the worker process that does it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmore._version import __version__
from elmore.base.io import Errors, sha256_file
from elmore.base.pool import Worker
from elmore.compute.native import native
from elmore.elmo import Elmo
from elmore.embedding.load import ModelPath, read_checkpoint
from elmore.embedding.results import value_shape
from elmore.embedding.stream import embed_records
from elmore.embedding.vector_files import VECTOR_FORMATS, Settings, check_format, write_vectors
from elmore.errors import ConfigError
from elmore.options import Compute, ComputeOptions, Output, OutputOptions, check_counts
from elmore.text.reading import Counts, Reading
from elmore.text.records import Text, as_text
from elmore.text.segmenter import Tokenizer, sendable

# Of text in a shard, about 100,000 tokens of English: what is lost when a worker is killed.
SHARD_BYTES = 1 << 19


class JobOptions(ComputeOptions, OutputOptions, total=False):
    """The attributes of a `Job`, but for the model, as keywords of `embed_files`."""

    format: str
    tokenized: bool
    split_sentences: bool
    column: str | int | None
    conllu: bool
    errors: Errors
    limit: int | None
    shard_bytes: int


@dataclass(frozen=True, kw_only=True)
class Job(Compute, Output):
    """What a bulk run is asked for: all that its output depends on besides the inputs.

    Attributes:
        model: what `Elmo.load` takes.
        format: of the shards, one of `VECTOR_FORMATS`.
        tokenized: lines are tokens separated by spaces.
        split_sentences: lines are running text, with blank lines between paragraphs.
        column, conllu: where the texts are in a file, as in `text.reading.Reading`.
        errors: what to do with lines that are not UTF-8.
        limit: stop after this many sentences.
        shard_bytes: a shard ends with the sentence that reaches this many bytes of text.
        threads: of each process.
    """

    model: ModelPath
    format: str = "parquet"
    tokenized: bool = False
    split_sentences: bool = False
    column: str | int | None = None
    conllu: bool = False
    errors: Errors = "strict"
    limit: int | None = None
    shard_bytes: int = SHARD_BYTES
    # Not all processors: there is one process for each of them.
    threads: int | None = 1

    def __post_init__(self) -> None:
        Compute.__post_init__(self)
        Output.__post_init__(self)
        if self.format not in VECTOR_FORMATS:
            raise ConfigError(f"format={self.format!r}; use one of {', '.join(VECTOR_FORMATS)}")
        check_format(self.format, pooled=self.pool is not None)
        # Workers find a function by its name.
        object.__setattr__(self, "tokenizer", sendable(self.tokenizer))
        self.reading()  # refuses what does not fit together
        check_counts(self, "limit", "shard_bytes")

    def reading(self, tokenizer: Tokenizer = "ptb") -> Reading:
        """How the text is read; `tokenizer` is the model's own."""
        return Reading(
            tokenized=self.tokenized,
            split_sentences=self.split_sentences,
            tokenizer=tokenizer,
            errors=self.errors,
            column=self.column,
            conllu=self.conllu,
        )

    def settings(self) -> dict[str, Any]:
        """What the manifest says about the job, as JSON."""
        # Not the model: the manifest has its digest, which is the same wherever it is stored.
        names = (field.name for field in dataclasses.fields(self) if field.name != "model")
        values = {name: getattr(self, name) for name in names}
        if not isinstance(self.layers, str | int):
            values["layers"] = [float(weight) for weight in self.layers]
        return values


# --------------------------------------------------------------------------- in a worker process


def start_embedder(setup: Mapping[str, Any]) -> Worker:
    """Load the model of a job."""
    embedder = ShardEmbedder(setup["job"])

    def perform(request: Mapping[str, Any]) -> dict[str, Any]:
        path = request["folder"] / request["file"]
        return embedder.write_shard(path, request["first"], request["texts"])

    return Worker(perform, embedder.facts())


class ShardEmbedder:
    """A loaded model that writes shards; `elmo` instead of the job's model, if it is given."""

    def __init__(self, job: Job, elmo: Elmo | None = None) -> None:
        self.job = job
        if elmo is not None:
            self.elmo = elmo
            return
        checkpoint, options = read_checkpoint(job.model), job.options()
        # Chosen here too if it is only assumed: the parent warns, not every worker.
        options["tokenizer"] = job.tokenizer or checkpoint.tokenizer
        self.elmo = Elmo(checkpoint, **options)

    def facts(self) -> dict[str, Any]:
        """What the vectors depend on besides settings and text."""
        return {
            "model": {"sha256": self.elmo.digest, "dim": self.elmo.dim},
            "software": {
                "elmore": __version__,
                "numpy": np.__version__,
                "native": native().module is not None,
            },
        }

    def forget_words(self) -> None:
        """Empty the word cache where a word's vector depends on the batch it was computed in.

        Our kernels always give the same bits. In numpy and torch, words that an earlier shard left
        may differ in their last bits from those computed again after an interruption.
        """
        if native().module is None or self.elmo.engine.device != "cpu":
            self.elmo.engine.cache.clear()

    def write_shard(self, path: Path, first: int, texts: Sequence[Text]) -> dict[str, Any]:
        """Embed texts into a file; `first` is the number of the first of them."""
        self.forget_words()
        counts, reading = Counts(), self.job.reading(self.elmo.tokenize)
        alphabet = self.elmo.checkpoint.alphabet
        sentences = (
            (as_text(text), counts.add(reading.sentence(text), alphabet)) for text in texts
        )
        records = embed_records(self.elmo.engine, sentences, self.job)
        settings = Settings(
            shape=value_shape(self.elmo.config, self.job),
            dtype=self.job.dtype,
            texts=self.job.split_sentences or self.job.column is not None,
            overwrite=True,
            first=first,
        )
        write_vectors(self.job.format, path, records, settings)
        return {
            "sentences": counts.sentences,
            "tokens": counts.tokens,
            "empty": counts.empty,
            "cut": counts.cut,
            "bytes": path.stat().st_size,
            "sha256": sha256_file(path),
        }

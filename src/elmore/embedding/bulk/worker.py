"""The program of a worker process: load a model once, then embed shard after shard."""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from elmore._io import sha256_file
from elmore._remote_errors import error_facts
from elmore._version import __version__
from elmore.embedding.bulk.job import Job
from elmore.embedding.reading import Counts, SentenceMaker
from elmore.embedding.writers import open_writer
from elmore.errors import ElmoreError
from elmore.text.sentence import Sentence

__all__ = ["Embedder", "serve"]


class Embedder:
    """A loaded model that writes shards.

    Args:
        job: what to do.
    """

    def __init__(self, job: Job) -> None:
        from elmore.embedding.elmo import Elmo
        from elmore.formats.detect import read_checkpoint

        self.job = job
        self.elmo = Elmo(
            read_checkpoint(job.model),
            device=job.device,
            precision=job.precision,
            threads=job.threads,
            start=job.start,  # type: ignore[arg-type]  # as above
            token_vectors=job.token_vectors,
        )

    def facts(self) -> dict[str, Any]:
        """Tell what the vectors depend on besides settings and text."""
        from elmore.embedding.layer_cache import model_digest
        from elmore.kernels.native import native

        return {
            "model": {"sha256": model_digest(self.elmo), "dim": self.elmo.dim},
            "software": {
                "elmore": __version__,
                "numpy": np.__version__,
                "native": native().module is not None,
            },
        }

    def write_shard(self, path: Path, first: int, texts: Sequence[str]) -> dict[str, Any]:
        """Embed texts into a file.

        Args:
            path: the file to make.
            first: number of the first text.
            texts: the sentences.
        """
        from elmore.embedding.records import embed_records

        # Words that an earlier shard left behind were computed in other company, and may differ in
        # their last bits.
        self.elmo.engine.cache.clear()
        counts = Counts()
        maker = SentenceMaker.of(self.elmo, tokenized=self.job.tokenized)

        def sentences() -> Iterator[tuple[str, Sentence]]:
            for text in texts:
                yield text, maker.make(text, counts)

        records = embed_records(
            self.elmo,
            sentences(),
            layers=self.job.layers,
            pool=self.job.pool,
            batch_tokens=self.job.batch_tokens,
        )
        settings = self.job.writer_settings(self.elmo.config, first)
        with open_writer(self.job.format, path, settings) as writer:
            for record in records:
                writer.write(record)
        facts = asdict(counts)
        return {
            **{name: facts[name] for name in ("sentences", "tokens", "empty", "cut")},
            "bytes": path.stat().st_size,
            "sha256": sha256_file(path),
        }


def serve() -> None:
    """Perform the requests on stdin and reply on stdout; end at once when stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whoever prints must not disturb
    requests: queue.SimpleQueue[tuple[dict[str, Any], list[str]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    embedder: Embedder | None = None
    while True:
        request, texts = requests.get()
        try:
            if embedder is None:
                embedder = _started(request)
                reply = embedder.facts()
            else:
                reply = embedder.write_shard(Path(request["path"]), request["first"], texts)
        except ElmoreError as error:
            reply = error_facts(error)
        except MemoryError:
            reply = error_facts(ElmoreError("out of memory; use fewer workers"))
        except Exception as error:
            what = f"unexpected {type(error).__name__} in a worker: {error}; report it"
            reply = error_facts(ElmoreError(what))
        try:
            replies.write(json.dumps(reply).encode() + b"\n")
            replies.flush()
        except BrokenPipeError:
            return


def _started(request: Mapping[str, Any]) -> Embedder:
    return Embedder(Job.from_json(request))


def _listen(stream: BinaryIO, requests: queue.SimpleQueue[Any]) -> None:
    """Hand requests on; at the end of the stream nobody waits for us any more."""
    while line := stream.readline():
        request = json.loads(line)
        data = stream.read(request.pop("n_bytes"))
        requests.put((request, json.loads(data or b"[]")))
    os._exit(0)  # a shard that is not whole has no name yet

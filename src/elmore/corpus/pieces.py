"""From blocks of text to pieces, and from pieces to shards, on several processes.

A block is text of about 2 MB; a piece is the same text tokenized, its documents in random order. A
shard takes its share of documents from all pieces, so that the corpus is shuffled without being in
memory. All of it happens in the folder OUT.partial, where an interrupted run resumes.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elmore.base.journal import FinishedFile, JournalFolder
from elmore.base.json import json_digest
from elmore.base.messages import Progress, shown
from elmore.base.pool import Pool, Request
from elmore.corpus.prepared import HELDOUT
from elmore.corpus.shards import KEYS
from elmore.corpus.texts import BLOCK_BYTES, Position, TextFile, no_tokens, read_blocks
from elmore.corpus.worker_tasks import block_fields
from elmore.errors import InputError
from elmore.text.reading import Reading

__all__ = ["PieceRecord", "ShardPlan", "Workspace", "make_pieces", "make_shards", "shard_name"]

_log = logging.getLogger(__name__)
_VERSION = 2  # of what pieces look like and where blocks end
_NAMES = re.compile(r"piece-\d{6,}\.safetensors|shards-[0-9a-f]{16}")


@dataclass(frozen=True, kw_only=True)
class PieceRecord(FinishedFile):
    """What a piece holds, and where the next one starts."""

    tokens: int
    documents: int
    min_hash: int
    n_replaced: int
    n_skipped: int
    n_cut: int
    heldout: bool
    end: tuple[int, int, int, int]


class Workspace:
    """OUT.partial: pieces with a journal (base/journal.py), then shards."""

    def __init__(self, journal: JournalFolder[PieceRecord]) -> None:
        self.journal = journal
        self._header: dict[str, Any] = {}

    @classmethod
    @contextlib.contextmanager
    def opened(cls, out: Path) -> Iterator[Workspace]:
        """Create or find the folder beside `out`, and keep other processes out of it."""
        busy = (
            f"'{shown(out, 120)}' is being prepared by another process; wait for it or choose "
            "another folder"
        )
        path = out.with_name(f"{out.name}.partial")
        with JournalFolder.opened(path, PieceRecord, _NAMES, busy=busy) as journal:
            yield cls(journal)

    def piece(self, number: int) -> Path:
        """The file of a piece."""
        return self.journal.path / f"piece-{number:06d}.safetensors"

    def resume(self, fingerprint: str) -> list[PieceRecord]:
        """Find the finished pieces, if they are of the same texts and options.

        Where a block starts is known from the one before it, so only pieces without a gap count.
        """
        self._header = {"format": "elmore-pieces", "fingerprint": fingerprint}
        found = self.journal.found()
        records = found[1] if found is not None and found[0] == self._header else []
        done = itertools.takewhile(self.journal.is_intact, records)
        return self.journal.begin(self._header, done)

    def shards(self, plan: ShardPlan) -> Path:
        """The folder for the shards of a plan; those of other plans are removed."""
        name = f"shards-{json_digest([self._header, asdict(plan)])[:16]}"
        for old in self.journal.path.glob("shards-*"):
            if old.name != name:
                shutil.rmtree(old)
        folder = self.journal.path / name
        folder.mkdir(exist_ok=True)
        return folder


def make_pieces(
    work: Workspace,
    files: Sequence[TextFile],
    reading: Reading,
    seed: int,
    pool: Pool,
    progress: Progress,
) -> list[PieceRecord]:
    """Tokenize all blocks that are not pieces yet."""
    texts = [[file.sha256, file.linewise, file.heldout] for file in files]
    records = work.resume(json_digest([_VERSION, BLOCK_BYTES, asdict(reading), seed, texts]))
    if records:
        _log.info("resuming after %d finished pieces", len(records))
        progress.update(sum(record.tokens for record in records))
    start = Position(*records[-1].end) if records else None

    def requests() -> Iterator[Request]:
        for k, block in enumerate(read_blocks(files, start), len(records)):
            fields = block_fields("piece", files, block.segments, reading, seed)
            fields["path"] = os.fspath(work.piece(k))
            end = (block.end.file, block.end.offset, block.end.line, block.end.document)
            fields["known"] = {"end": end, "heldout": block.heldout, "n_cut": block.n_cut}
            yield Request(fields, block.data)

    done = list(records)
    # In order, because a run resumes where the last recorded piece ends.
    for request, reply in pool.map(requests(), in_order=True):
        name = os.path.basename(request.fields["path"])
        record = PieceRecord(file=name, **request.fields["known"], **reply)
        work.journal.add(record)
        done.append(record)
        progress.update(record.tokens)
    if not sum(record.tokens for record in done if not record.heldout):
        work.journal.clear()
        raise no_tokens(sum(not file.heldout for file in files))
    return done


@dataclass(frozen=True, kw_only=True)
class ShardPlan:
    """Which documents go into which shard.

    Attributes:
        n_pieces: all of them.
        n_inputs: the first of them, which are not held out completely.
        n_shards: shards to make; some may turn out empty.
        limit: documents with smaller hashes are held out.
    """

    n_pieces: int
    n_inputs: int
    n_shards: int
    limit: int

    @classmethod
    def of(cls, pieces: Sequence[PieceRecord], share: float, shard_tokens: int) -> ShardPlan:
        """Plan for these pieces, and hold out a share of their documents."""
        inputs = [piece for piece in pieces if not piece.heldout]
        n_documents = sum(piece.documents for piece in inputs)
        n_tokens = sum(piece.tokens for piece in inputs)
        min_hash = min(piece.min_hash for piece in inputs)
        # Hashes are spread evenly below KEYS. A single document is kept for training.
        limit = math.ceil(share * KEYS) if n_documents > 1 else 0
        if limit and min_hash >= limit:
            limit = min_hash + 1  # the share of a small corpus is less than one document
        return cls(
            n_pieces=len(pieces),
            n_inputs=len(inputs),
            n_shards=max(1, min(n_documents, round(n_tokens / shard_tokens))),
            limit=limit,
        )


def shard_name(number: int) -> str:
    """The file name of a shard."""
    return f"shard-{number:05d}.safetensors"


def make_shards(work: Workspace, plan: ShardPlan, pool: Pool) -> tuple[list[Path], Path | None]:
    """Merge the shards that do not exist yet; those with documents, and the held-out one if any."""
    folder = work.shards(plan)
    # Rounded up. The last bound is KEYS itself, so every key is in a shard.
    bounds = [-(-k * KEYS // plan.n_shards) for k in range(plan.n_shards + 1)]
    paths = [folder / shard_name(k) for k in range(plan.n_shards)]
    held = folder / HELDOUT
    common = {
        "task": "shard",
        "pieces": [os.fspath(work.piece(k)) for k in range(plan.n_pieces)],
        "n_inputs": plan.n_inputs,
        "limit": plan.limit,
    }

    def requests() -> Iterator[Request]:
        ranges = [*itertools.pairwise(bounds), (0, KEYS)]
        for path, (low, high) in zip([*paths, held], ranges, strict=True):
            # A shard gets its name when it is complete: one that exists was made by an earlier run.
            if not path.exists():
                bound = {"low": low, "high": high, "heldout": path == held}
                yield Request({**common, **bound, "path": os.fspath(path)})

    for _ in pool.map(requests()):
        pass
    shards = [path for path in paths if path.exists()]
    if not shards:
        raise InputError("every document is held out; lower heldout or give more text")
    return shards, held if held.exists() else None

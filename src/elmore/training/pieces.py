"""Every block of text becomes a piece, on all processors."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from elmore._json import json_digest
from elmore._progress import Progress
from elmore.training.blocks import BLOCK_BYTES, Position, Segment, read_blocks
from elmore.training.input_files import no_tokens
from elmore.training.reading import Reading
from elmore.training.text_files import TextFile
from elmore.training.worker_processes import Workers
from elmore.training.workspace import PieceRecord, Workspace

__all__ = ["block_request", "make_pieces"]

_log = logging.getLogger(__name__)
_VERSION = 1  # of what pieces look like and how blocks are cut


def block_request(
    task: str, files: Sequence[TextFile], segments: Sequence[Segment], reading: Reading, seed: int
) -> dict[str, Any]:
    """Make the request for a task on a block."""
    used = [files[segment.start.file] for segment in segments]
    return {
        "task": task,
        "segments": [asdict(segment) for segment in segments],
        "names": [file.path for file in used],
        "linewise": [file.linewise for file in used],
        "reading": asdict(reading),
        "seed": seed,
    }


def make_pieces(
    work: Workspace,
    files: Sequence[TextFile],
    reading: Reading,
    seed: int,
    pool: Workers,
    progress: Progress,
) -> list[PieceRecord]:
    """Tokenise what is not tokenised yet."""
    texts = [[file.sha256, file.linewise, file.heldout] for file in files]
    records = work.resume(json_digest([_VERSION, BLOCK_BYTES, asdict(reading), seed, texts]))
    if records:
        _log.info("going on after %d pieces that are done", len(records))
        progress.update(sum(record.tokens for record in records))
    start = Position(*records[-1].end) if records else None

    def requests() -> Iterator[tuple[dict[str, Any], bytes]]:
        for k, block in enumerate(read_blocks(files, start), len(records)):
            request = block_request("piece", files, block.segments, reading, seed)
            request["path"] = os.fspath(work.piece(k))
            end = (block.end.file, block.end.offset, block.end.line, block.end.document)
            request["record"] = {"end": end, "heldout": block.heldout, "n_cut": block.n_cut}
            yield request, block.data

    done = list(records)
    for request, reply in pool.map(requests()):
        record = PieceRecord(**request["record"], **reply)
        work.append(record)
        done.append(record)
        progress.update(record.tokens)
    if not sum(record.tokens for record in done if not record.heldout):
        work.remove()
        raise no_tokens(sum(not file.heldout for file in files))
    return done

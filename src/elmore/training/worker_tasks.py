"""What the worker processes of `prepare` do, and the requests for it.

inspect    find out what files are
piece      tokenize a block of text and write it as a piece
count      tokenize a block of text and count its words
shard      merge a share of all pieces into a shard
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elmore._machine import available_threads
from elmore.jobs.pool import Pool, Request
from elmore.jobs.worker import Worker
from elmore.text.reading import Reading
from elmore.training.blocks import Position, Segment
from elmore.training.corpus import TextFile, inspect_file
from elmore.training.shards import KEYS, Selection, merge, write_piece
from elmore.training.tokenizing import tokenize_block

__all__ = ["block_fields", "inspect_files", "open_pool", "start"]

_SMALL_CORPUS = 1 << 20  # bytes; not worth starting processes


def open_pool(n_workers: int | None, paths: Sequence[Path]) -> Pool:
    """A pool of the size asked for, or of one that fits the machine and the files.

    One worker is the calling process itself.
    """
    if n_workers is None:
        small = sum(os.path.getsize(path) for path in paths) <= _SMALL_CORPUS
        n_workers = 1 if small else available_threads()
    return Pool(start, n_workers, in_process=n_workers == 1)


def inspect_files(paths: Sequence[Path], held: Sequence[Path], pool: Pool) -> list[TextFile]:
    """Read every file once, to find out what it is."""
    names = [os.fspath(path) for path in [*paths, *held]]
    step = max(1, len(names) // 256)
    requests = (
        Request(f"looking at '{names[k]}'", {"task": "inspect", "paths": names[k : k + step]})
        for k in range(0, len(names), step)
    )
    found = [file for _, reply in pool.map(requests, in_order=True) for file in reply["files"]]
    return [TextFile(**file, heldout=k >= len(paths)) for k, file in enumerate(found)]


def block_fields(
    task: str, files: Sequence[TextFile], segments: Sequence[Segment], reading: Reading, seed: int
) -> dict[str, Any]:
    """The fields of a request to tokenize a block."""
    used = [files[segment.start.file] for segment in segments]
    return {
        "task": task,
        "segments": [asdict(segment) for segment in segments],
        "names": [file.path for file in used],
        "linewise": [file.linewise for file in used],
        "reading": asdict(reading),
        "seed": seed,
    }


# --------------------------------------------------------------------------- in a worker process


def start(setup: Mapping[str, Any]) -> Worker:
    """Make a worker; it needs nothing but its requests."""
    return Worker(_perform)


def _perform(fields: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    task = fields["task"]
    if task == "inspect":
        return {"files": [inspect_file(path) for path in fields["paths"]]}
    if task == "shard":
        return _merge_shard(fields)
    result = tokenize_block(
        [Segment(Position(**s["start"]), s["size"]) for s in fields["segments"]],
        data,
        fields["names"],
        fields["linewise"],
        Reading(**fields["reading"]),
        fields["seed"],
    )
    shard = result.piece.shard
    if task == "count":
        counts = shard.type_counts().tolist()
        return {"words": shard.types, "counts": counts, "tokens": shard.n_tokens}
    path = Path(fields["path"])
    write_piece(path, result.piece)
    return {
        "bytes": path.stat().st_size,
        "tokens": shard.n_tokens,
        "documents": shard.n_documents,
        "min_hash": int(result.piece.hashes.min(initial=KEYS)),
        "n_replaced": result.n_replaced,
        "n_skipped": result.n_skipped,
    }


def _merge_shard(fields: Mapping[str, Any]) -> dict[str, Any]:
    limit, n_inputs, held = fields["limit"], fields["n_inputs"], fields["heldout"]
    chosen = Selection(
        low=fields["low"],
        high=fields["high"],
        min_hash=0 if held else limit,
        max_hash=limit if held else KEYS,
    )
    pieces = [(Path(path), chosen) for path in fields["pieces"][:n_inputs]]
    if held:
        pieces += [(Path(path), Selection()) for path in fields["pieces"][n_inputs:]]
    return {"documents": merge(Path(fields["path"]), pieces)}

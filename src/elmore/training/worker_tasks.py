"""Pieces of work that need nothing but their request, so that any process can do them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmore.training.blocks import Position, Segment
from elmore.training.reading import Reading
from elmore.training.shards import KEYS, Selection, merge, write_piece
from elmore.training.text_files import inspect_file
from elmore.training.tokenizing import tokenize_block

__all__ = ["perform"]


def perform(request: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Do a piece of work.

    Args:
        request: the task and its arguments, as JSON.
        data: text, for the tasks that need it.
    """
    task = request["task"]
    if task == "inspect":
        return {"files": [inspect_file(path) for path in request["paths"]]}
    if task == "shard":
        return _merge_shard(request)
    result = tokenize_block(
        [Segment(Position(**s["start"]), s["size"]) for s in request["segments"]],
        data,
        request["names"],
        request["linewise"],
        Reading(**request["reading"]),
        request["seed"],
    )
    shard = result.piece.shard
    if task == "count":
        counts = shard.type_counts().tolist()
        return {"words": shard.types, "counts": counts, "tokens": shard.n_tokens}
    path = Path(request["path"])
    write_piece(path, result.piece)
    return {
        "size": path.stat().st_size,
        "tokens": shard.n_tokens,
        "documents": shard.n_documents,
        "least_hash": int(result.piece.hashes.min(initial=KEYS)),
        "n_replaced": result.n_replaced,
        "n_skipped": result.n_skipped,
    }


def _merge_shard(request: Mapping[str, Any]) -> dict[str, Any]:
    limit, n_inputs, held = request["limit"], request["n_inputs"], request.get("heldout", False)
    chosen = Selection(
        low=request["low"],
        high=request["high"],
        least_hash=0 if held else limit,
        most_hash=limit if held else KEYS,
    )
    pieces = [(Path(path), chosen) for path in request["pieces"][:n_inputs]]
    if held:
        pieces += [(Path(path), Selection()) for path in request["pieces"][n_inputs:]]
    return {"documents": merge(Path(request["path"]), pieces)}

"""Documents dealt to shards: every shard is gathered from all pieces."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elmore.errors import InputError
from elmore.training.prepared import HELDOUT
from elmore.training.shards import KEYS
from elmore.training.worker_processes import Workers
from elmore.training.workspace import PieceRecord, Workspace

__all__ = ["Plan", "make_shards", "shard_name"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How documents are dealt.

    Attributes:
        n_pieces: all of them.
        n_inputs: the first of them, which are not held out as a whole.
        n_shards: shards to make; some may turn out empty.
        limit: documents with smaller hashes are held out.
    """

    n_pieces: int
    n_inputs: int
    n_shards: int
    limit: int

    @classmethod
    def of(cls, pieces: Sequence[PieceRecord], share: float, shard_tokens: int) -> Plan:
        """Plan for some pieces, of which a share of the documents is held out."""
        inputs = [piece for piece in pieces if not piece.heldout]
        n_documents = sum(piece.documents for piece in inputs)
        n_tokens = sum(piece.tokens for piece in inputs)
        least = min(piece.least_hash for piece in inputs)
        limit = math.ceil(share * KEYS) if n_documents > 1 else 0
        if limit and least >= limit:
            limit = least + 1  # the share of a small corpus is less than one document
        return cls(
            n_pieces=len(pieces),
            n_inputs=len(inputs),
            n_shards=max(1, min(n_documents, round(n_tokens / shard_tokens))),
            limit=limit,
        )


def shard_name(number: int) -> str:
    """Name the file of a shard."""
    return f"shard-{number:05d}.safetensors"


def make_shards(work: Workspace, plan: Plan, pool: Workers) -> tuple[list[Path], Path | None]:
    """Gather the shards that are not there yet; give those with documents, and the held-out one."""
    folder = work.shards(asdict(plan))
    bounds = [-(-k * KEYS // plan.n_shards) for k in range(plan.n_shards + 1)]
    common = {
        "task": "shard",
        "pieces": [os.fspath(work.piece(k)) for k in range(plan.n_pieces)],
        "n_inputs": plan.n_inputs,
        "limit": plan.limit,
    }
    paths = [folder / shard_name(k) for k in range(plan.n_shards)]
    requests: list[dict[str, Any]] = [
        {**common, "path": os.fspath(path), "low": low, "high": high}
        for path, low, high in zip(paths, bounds, bounds[1:], strict=False)
    ]
    held = folder / HELDOUT
    requests.append({**common, "path": os.fspath(held), "low": 0, "high": KEYS, "heldout": True})
    missing = ((request, b"") for request in requests if not os.path.exists(request["path"]))
    for _ in pool.map(missing):
        pass
    shards = [path for path in paths if path.exists()]
    if not shards:
        raise InputError("every document is held out; lower heldout or give more text")
    return shards, held if held.exists() else None

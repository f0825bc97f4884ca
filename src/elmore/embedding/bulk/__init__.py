"""Vectors of large text files: several processes, shards of output, runs that can be stopped."""

from __future__ import annotations

from elmore.embedding.bulk.embed_files import embed_files
from elmore.embedding.bulk.folder import BulkResult

__all__ = ["BulkResult", "embed_files"]

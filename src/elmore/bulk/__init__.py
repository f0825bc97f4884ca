"""Vectors of large text files: several processes, output in shards, runs that can resume."""

from __future__ import annotations

from elmore.bulk.embed_files import embed_files
from elmore.bulk.output_folder import BulkResult

__all__ = ["BulkResult", "embed_files"]

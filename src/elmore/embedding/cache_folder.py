"""Where frozen layers lie: in a folder that stays, or in one that lasts as long as the work."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["cache_folder"]


@contextlib.contextmanager
def cache_folder(cache: str | Path | None) -> Iterator[Path]:
    """Give the folder of a cache, or a temporary one if none is named."""
    if cache is not None:
        yield Path(cache)
        return
    with tempfile.TemporaryDirectory(prefix="elmore-layers-") as folder:
        yield Path(folder)

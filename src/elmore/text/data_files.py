"""Lines of data files, packed or plain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from elmore._io import open_text, read_lines
from elmore.limits import LIMITS

__all__ = ["numbered_lines"]


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file, packed or plain, with their numbers from 1."""
    with open_text(path, what="data file") as stream:
        yield from read_lines(stream, what=str(path), max_line=LIMITS.text_line_bytes)

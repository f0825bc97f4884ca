"""Lines of data files, packed or plain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from elmore._io import open_text, read_lines
from elmore.limits import LIMITS

__all__ = ["numbered_lines", "split_columns"]

_COLUMN = re.compile(r"[^ \t\r\n]+")


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file, packed or plain, with their numbers from 1."""
    with open_text(path, what="data file") as stream:
        yield from read_lines(stream, what=str(path), max_line=LIMITS.text_line_bytes)


def split_columns(line: str) -> list[str]:
    """Split at spaces and tabs only: U+00A0 and its like, where str.split() splits, are letters."""
    return _COLUMN.findall(line)

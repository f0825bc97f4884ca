"""CoNLL columns: a token a line, blank lines between sentences (CoNLL-2003 and its kin)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elmore._messages import shown
from elmore.errors import InputError
from elmore.tasks.tags import is_tag
from elmore.text.reading import numbered_lines, split_columns

__all__ = ["TaggedTokens", "read_columns"]

_DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True)
class TaggedTokens:
    """A sentence of a file.

    Attributes:
        tokens: first column.
        tags: the chosen column, in whatever scheme the file has.
        line: number of the first line.
    """

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    line: int


def read_columns(path: Path, *, column: int = -1) -> Iterator[TaggedTokens]:
    """Read a file of columns, plain or packed; a line that opens a document ends a sentence.

    Args:
        path: the file.
        column: which column holds the tags; the last by default.

    Raises:
        InputError: a line with another number of columns, or with a tag that is none.
    """
    tokens: list[str] = []
    tags: list[str] = []
    start, width = 1, 0
    for number, line in numbered_lines(path):
        parts = split_columns(line)
        if not line.strip() or parts[0] == _DOCUMENT:
            if tokens:
                yield TaggedTokens(tuple(tokens), tuple(tags), start)
            tokens, tags = [], []
            continue
        width = width or len(parts)
        if len(parts) != width or width < 2:
            raise InputError(
                f"{len(parts)} columns, expected {max(2, width)}; separate columns by one space "
                "or tab",
                file=str(path),
                line=number,
            )
        if not is_tag(parts[column]):
            raise InputError(
                f"'{shown(parts[column], 40)}' is no tag; use O or B-, I-, E-, S- (L-, U-) and a "
                "label",
                file=str(path),
                line=number,
            )
        if not tokens:
            start = number
        tokens.append(parts[0])
        tags.append(parts[column])
    if tokens:
        yield TaggedTokens(tuple(tokens), tuple(tags), start)

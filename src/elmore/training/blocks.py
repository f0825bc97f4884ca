"""Text files read as blocks of complete documents; one worker tokenizes a block."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmore._io import long_line, open_text
from elmore._messages import shown
from elmore.errors import InputError
from elmore.training.corpus import (
    BORDER,
    LINES_PER_DOCUMENT,
    READ_BYTES,
    TextFile,
    count_documents,
)

__all__ = ["BLOCK_BYTES", "Block", "Position", "Segment", "read_blocks"]

BLOCK_BYTES = 1 << 21  # of text, handed to one worker: about 400,000 tokens of English
# Longer documents are cut at the end of a line, so that memory stays bounded.
_DOCUMENT_BYTES = 1 << 24


@dataclass(frozen=True)
class Position:
    """A place between two documents: file, bytes of its text, line from 1, document from 0."""

    file: int = 0
    offset: int = 0
    line: int = 1
    document: int = 0


@dataclass(frozen=True)
class Segment:
    """Documents of one file in a block."""

    start: Position
    size: int


@dataclass(frozen=True)
class Block:
    """Complete documents of one or several files.

    Attributes:
        segments: where the text is from, in order.
        data: the text.
        end: where the next block starts.
        heldout: all of it is held out.
        n_cut: documents that were too long and are cut at the end of this block.
    """

    segments: tuple[Segment, ...]
    data: bytes
    end: Position
    heldout: bool
    n_cut: int


def read_blocks(
    files: Sequence[TextFile], start: Position | None = None, *, block_bytes: int = BLOCK_BYTES
) -> Iterator[Block]:
    """Read files as blocks; held-out files never share a block with others.

    Args:
        files: all files of the corpus.
        start: the `end` of an earlier block, to resume from there.
        block_bytes: a block ends with the first document that ends beyond this size.

    Yields:
        blocks that depend on the files and `block_bytes` only.
    """
    here = start or Position()
    segments: list[Segment] = []
    parts: list[bytes] = []
    for number in range(here.file, len(files)):
        file = files[number]
        if number != here.file:
            here = Position(number)
        with _Documents(file, here) as documents:
            while data := documents.take(block_bytes - sum(map(len, parts))):
                segments.append(Segment(here, len(data)))
                parts.append(data)
                here = _after(here, data, file.linewise)
                if sum(map(len, parts)) >= block_bytes:
                    yield _block(segments, parts, here, file.heldout, documents.n_cut)
                    segments, parts, documents.n_cut = [], [], 0
        last = number + 1 == len(files)
        if parts and (last or files[number + 1].heldout != file.heldout):
            yield _block(segments, parts, Position(number + 1), file.heldout, 0)
            segments, parts = [], []


def _block(
    segments: list[Segment], parts: list[bytes], end: Position, heldout: bool, n_cut: int
) -> Block:
    return Block(tuple(segments), b"".join(parts), end, heldout, n_cut)


def _after(start: Position, data: bytes, linewise: bool) -> Position:
    return Position(
        start.file,
        start.offset + len(data),
        start.line + data.count(b"\n"),
        start.document + count_documents(data, linewise),
    )


class _Documents(contextlib.AbstractContextManager["_Documents"]):
    """Cuts the text of a file between documents."""

    def __init__(self, file: TextFile, start: Position) -> None:
        self._file = file
        self._start = start
        self._line = start.line
        self._buffer = b""
        self._stack = contextlib.ExitStack()
        self.n_cut = 0

    def __enter__(self) -> _Documents:
        self._stack.__enter__()
        self._stream = self._stack.enter_context(open_text(Path(self._file.path), what="input"))
        left = self._start.offset
        while left and (data := self._stream.read(min(left, READ_BYTES))):
            left -= len(data)
        return self

    def __exit__(self, *details: Any) -> bool | None:
        return self._stack.__exit__(*details)

    def take(self, room: int) -> bytes:
        """Read complete documents, up to the first that ends beyond `room`; b"" at the end."""
        cut = self._cut(room)
        while not cut:
            chunk = self._stream.read(READ_BYTES)
            if not chunk:
                self._check_unchanged()
                cut = len(self._buffer)
                break
            self._buffer += chunk
            cut = self._cut(room)
        data, self._buffer = self._buffer[:cut], self._buffer[cut:]
        self._line += data.count(b"\n")
        return data

    def _check_unchanged(self) -> None:
        if os.path.getsize(self._file.path) != self._file.size:
            raise InputError(
                f"'{shown(self._file.path, 140)}' changed while it was being read; run it again"
            )

    def _cut(self, room: int) -> int:
        """Where to cut; 0 if more text is needed."""
        buffer = self._buffer
        if len(buffer) <= room:
            return 0
        if self._file.linewise:
            lines = buffer.count(b"\n", 0, room)
            end = room
            for _ in range(LINES_PER_DOCUMENT - lines % LINES_PER_DOCUMENT):
                end = buffer.find(b"\n", end) + 1
                if not end:
                    break
            else:
                return end
        elif match := BORDER.search(buffer, room):
            return match.end()
        if len(buffer) <= room + _DOCUMENT_BYTES:
            return 0
        end = buffer.rfind(b"\n", 0, room + _DOCUMENT_BYTES) + 1
        if not end:
            raise long_line(_DOCUMENT_BYTES, self._file.path, self._line)
        self.n_cut += 1
        return end

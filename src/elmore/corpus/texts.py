"""The text files of a corpus, where documents end in them, and blocks of documents for workers.

Documents are separated by blank lines. In a file that has no blank line between lines of text
("linewise"), every hundred lines are a document.
"""

from __future__ import annotations

import codecs
import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from elmore.base.io import long_line, open_checked, open_text, sha256_stream
from elmore.base.json import json_digest
from elmore.base.messages import shown
from elmore.errors import InputError

LINES_PER_DOCUMENT = 100  # in files without blank lines
BLOCK_BYTES = 1 << 21  # of text, handed to one worker: about 400,000 tokens of English
# Longer documents are cut at the end of a line, so that memory stays bounded.
_DOCUMENT_BYTES = 1 << 24
_READ_BYTES = 1 << 20  # read at a time
# The end of a document: a blank line with text after it.
_BORDER = re.compile(rb"\n[ \t\r]*+\n[ \t\r\n]*+(?=[^ \t\r\n])")
_BLANK = b" \t\r\n"
_LISTED_FILES = 1000  # prepared.json lists no more files, only their number and digest


# --------------------------------------------------------------------------- files


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A file of the corpus; size and SHA-256 are of the bytes as stored."""

    path: str
    size: int
    sha256: str
    linewise: bool
    heldout: bool = False


def input_paths(
    inputs: Sequence[str | Path], heldout_files: Sequence[str | Path]
) -> tuple[list[Path], list[Path]]:
    """Find the files to train on and those to hold out; none is in both."""
    held = expand_inputs(heldout_files)
    # By what links lead to: a held-out text under a second name must not be trained on.
    real = {os.path.realpath(path) for path in held}
    paths = [path for path in expand_inputs(inputs) if os.path.realpath(path) not in real]
    if not paths:
        raise InputError("no input files; name at least one text file")
    return paths, held


def expand_inputs(inputs: Iterable[str | Path]) -> list[Path]:
    """Turn names and patterns into the files they stand for, in order, each once.

    Raises:
        InputError: a pattern without a match, a folder, or a file that does not exist.
    """
    if isinstance(inputs, (str, os.PathLike)):
        inputs = [inputs]
    found: dict[str, Path] = {}
    for name in inputs:
        text = os.fspath(name)
        if os.path.lexists(text) or not glob.has_magic(text):
            names = [text]
        else:
            names = sorted(n for n in glob.glob(text, recursive=True) if not os.path.isdir(n))
            if not names:
                raise InputError(f"'{shown(text, 140)}' matches no file; check the pattern")
        for file in names:
            if os.path.isdir(file):
                raise InputError(
                    f"'{shown(file, 140)}' is a folder; name its files, such as "
                    f"'{shown(os.path.join(file, '*.txt'), 140)}'"
                )
            if not os.path.exists(file):
                raise InputError(f"'{shown(file, 140)}' does not exist; check the path")
            found.setdefault(os.path.realpath(file), Path(file))
    return list(found.values())


def inspect_file(path: str, heldout: bool = False) -> TextFile:
    """Read a file to find out what it is."""
    # Read twice: the sum is of the bytes as stored, borders are in the decompressed text.
    with open_checked(Path(path), what="input") as stream:
        size = os.fstat(stream.fileno()).st_size
        sha256 = sha256_stream(stream)
    with open_text(Path(path), what="input") as text:
        linewise = not _has_border(text)
    return TextFile(path=path, size=size, sha256=sha256, linewise=linewise, heldout=heldout)


def describe_files(files: Sequence[TextFile]) -> dict[str, Any]:
    """What prepared.json says about the files."""
    lines = [[shown(f.path, 1000), f.size, f.sha256, f.heldout] for f in files]
    described: dict[str, Any] = {
        "n_files": len(files),
        "bytes": sum(f.size for f in files),
        "sha256": json_digest(lines),
    }
    if len(files) <= _LISTED_FILES:
        keys = ("path", "size", "sha256", "heldout")
        described["files"] = [dict(zip(keys, line, strict=True)) for line in lines]
    return described


# --------------------------------------------------------------------------- documents


def _has_border(stream: BinaryIO) -> bool:
    """Whether a text has a blank line between lines of text."""
    rest = b""  # the last character of text, and what is blank after it
    while chunk := stream.read(_READ_BYTES):
        data = rest + chunk if rest else chunk.removeprefix(codecs.BOM_UTF8).lstrip(_BLANK)
        if _BORDER.search(data):
            return True
        rest = data[max(0, len(data.rstrip(_BLANK)) - 1) :]
        if rest.count(b"\n") > 1:
            rest = rest[:1] + b"\n\n"  # so that memory is bounded, however much is blank
    return False


def find_documents(data: bytes, start: int, end: int, linewise: bool) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each document between two places."""
    if linewise:
        while start < end:
            stop = start
            for _ in range(LINES_PER_DOCUMENT):
                stop = data.find(b"\n", stop, end) + 1
                if not stop:
                    stop = end
                    break
            yield start, stop
            start = stop
        return
    # A border needs text after it; `end` keeps the text of the next segment out of the search.
    for match in _BORDER.finditer(data, start, end):
        yield start, match.start()
        start = match.end()
    yield start, end


# --------------------------------------------------------------------------- blocks


@dataclass(frozen=True)
class Position:
    """A place between two documents: file, bytes of its text, line from 1, document from 0."""

    file: int = 0
    offset: int = 0
    line: int = 1
    document: int = 0


@dataclass(frozen=True)
class Segment:
    """Documents of one file in a block: where they start, and their bytes."""

    start: Position
    size: int
    file: TextFile


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
        with open_text(Path(file.path), what="input") as stream:
            documents = _Documents(file, stream, here)
            while data := documents.take(block_bytes - sum(map(len, parts))):
                segments.append(Segment(here, len(data), file))
                parts.append(data)
                here = _after(here, data, file.linewise)
                if sum(map(len, parts)) >= block_bytes:
                    yield Block(
                        tuple(segments), b"".join(parts), here, file.heldout, documents.n_cut
                    )
                    segments, parts, documents.n_cut = [], [], 0
        last = number + 1 == len(files)
        if parts and (last or files[number + 1].heldout != file.heldout):
            end = Position(number + 1)
            yield Block(tuple(segments), b"".join(parts), end, file.heldout, 0)
            segments, parts = [], []


def _after(start: Position, data: bytes, linewise: bool) -> Position:
    return Position(
        start.file,
        start.offset + len(data),
        start.line + data.count(b"\n"),
        start.document + sum(1 for _ in find_documents(data, 0, len(data), linewise)),
    )


class _Documents:
    """Cuts the text of a file between documents."""

    def __init__(self, file: TextFile, stream: BinaryIO, start: Position) -> None:
        self._file, self._stream = file, stream
        self._line = start.line
        self._buffer = b""
        self.n_cut = 0
        left = start.offset
        # Read, not sought: the file may be compressed.
        while left and (data := stream.read(min(left, _READ_BYTES))):
            left -= len(data)

    def take(self, room: int) -> bytes:
        """Read complete documents, up to the first that ends beyond `room`; b"" at the end."""
        cut = self._cut(room)
        while not cut:
            chunk = self._stream.read(_READ_BYTES)
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
            # The buffer starts with a document, so a multiple of a hundred lines ends one:
            # documents are the same, however a file is divided into blocks.
            lines = buffer.count(b"\n", 0, room)
            end = room
            for _ in range(LINES_PER_DOCUMENT - lines % LINES_PER_DOCUMENT):
                end = buffer.find(b"\n", end) + 1
                if not end:
                    break
            else:
                return end
        elif match := _BORDER.search(buffer, room):
            return match.end()
        # No end in sight: read on, up to the bound.
        if len(buffer) <= room + _DOCUMENT_BYTES:
            return 0
        end = buffer.rfind(b"\n", 0, room + _DOCUMENT_BYTES) + 1
        if not end:
            raise long_line(_DOCUMENT_BYTES, self._file.path, self._line)
        self.n_cut += 1
        return end

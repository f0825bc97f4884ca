"""The text files of a corpus, and where documents end in them.

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

from elmore._io import open_checked, open_text, sha256_stream
from elmore._json import json_digest
from elmore._messages import shown
from elmore.errors import InputError

__all__ = [
    "BORDER",
    "LINES_PER_DOCUMENT",
    "READ_BYTES",
    "TextFile",
    "count_documents",
    "describe_files",
    "expand_inputs",
    "find_documents",
    "input_paths",
    "inspect_file",
    "no_tokens",
]

LINES_PER_DOCUMENT = 100  # in files without blank lines
READ_BYTES = 1 << 20  # read at a time
# The end of a document: a blank line with text after it.
BORDER = re.compile(rb"\n[ \t\r]*+\n[ \t\r\n]*+(?=[^ \t\r\n])")
_BLANK = b" \t\r\n"
_LISTED_FILES = 1000  # prepared.json lists no more files, only their number and digest


# --------------------------------------------------------------------------- files


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A file of the corpus.

    Attributes:
        path: where it is.
        size: bytes, as stored.
        sha256: of the bytes as stored.
        linewise: it has no blank lines between documents.
        heldout: all of it is held out.
    """

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


def inspect_file(path: str) -> dict[str, Any]:
    """The size, SHA-256 and kind of a file, as fields of `TextFile`."""
    with open_checked(Path(path), what="input") as stream:
        size = os.fstat(stream.fileno()).st_size
        sha256 = sha256_stream(stream)
    with open_text(Path(path), what="input") as text:
        linewise = not _has_border(text)
    return {"path": path, "size": size, "sha256": sha256, "linewise": linewise}


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


def no_tokens(n_files: int) -> InputError:
    """The error for files without text."""
    files = "the input file has" if n_files == 1 else f"the {n_files} input files have"
    return InputError(f"{files} no tokens; name files with text")


# --------------------------------------------------------------------------- documents


def _has_border(stream: BinaryIO) -> bool:
    """Whether a text has a blank line between lines of text."""
    rest = b""  # the last character of text, and what is blank after it
    while chunk := stream.read(READ_BYTES):
        data = rest + chunk if rest else chunk.removeprefix(codecs.BOM_UTF8).lstrip(_BLANK)
        if BORDER.search(data):
            return True
        rest = data[max(0, len(data.rstrip(_BLANK)) - 1) :]
        if rest.count(b"\n") > 1:
            rest = rest[:1] + b"\n\n"  # so that memory is bounded, however much is blank
    return False


def count_documents(data: bytes, linewise: bool) -> int:
    """Count the documents of a text that starts and ends with one."""
    if linewise:
        return -(-data.count(b"\n") // LINES_PER_DOCUMENT)
    return sum(1 for _ in BORDER.finditer(data)) + 1


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
    for match in BORDER.finditer(data, start, end):
        yield start, match.start()
        start = match.end()
    yield start, end

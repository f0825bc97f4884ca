"""Documents in a text: where one ends and the next begins.

Documents are separated by blank lines. In a file without a blank line between lines of text
("linewise"), every hundred lines are a document.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO

__all__ = [
    "BORDER",
    "LINES_PER_DOCUMENT",
    "READ_BYTES",
    "count_documents",
    "find_documents",
    "has_border",
]

LINES_PER_DOCUMENT = 100  # in files without blank lines
READ_BYTES = 1 << 20  # read at a time
# The end of a document: a blank line, with text after it.
BORDER = re.compile(rb"\n[ \t\r]*+\n[ \t\r\n]*+(?=[^ \t\r\n])")
_BLANK = b" \t\r\n"


def has_border(stream: BinaryIO) -> bool:
    """Tell whether a text has a blank line between lines of text."""
    rest = b""  # the last character of text, and what is blank after it
    while chunk := stream.read(READ_BYTES):
        data = rest + chunk if rest else chunk.removeprefix(codecs.BOM_UTF8).lstrip(_BLANK)
        if BORDER.search(data):
            return True
        rest = data[max(0, len(data.rstrip(_BLANK)) - 1) :]
        if rest.count(b"\n") > 1:
            rest = rest[:1] + b"\n\n"
    return False


def count_documents(data: bytes, linewise: bool) -> int:
    """Count the documents of a text that begins and ends with one."""
    if linewise:
        return -(-data.count(b"\n") // LINES_PER_DOCUMENT)
    return sum(1 for _ in BORDER.finditer(data)) + 1


def find_documents(data: bytes, start: int, end: int, linewise: bool) -> Iterator[tuple[int, int]]:
    """Find the documents between two places."""
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
    # A border needs text after it, which must not be that of the next segment.
    for match in BORDER.finditer(data, start, end):
        yield start, match.start()
        start = match.end()
    yield start, end

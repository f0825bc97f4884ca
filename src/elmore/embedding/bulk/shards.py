"""Input files: what they are, and how their sentences are dealt into shards."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmore._io import open_checked, open_text, sha256_stream
from elmore._messages import shown
from elmore.embedding.reading import Counts, TextReader
from elmore.errors import InputError

__all__ = ["InputFile", "Shard", "cut_shards", "inspect_input"]


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file to be read.

    Attributes:
        path: where it is.
        size: bytes, as stored.
        sha256: of the bytes as stored.
        changed: when its content changed last, in nanoseconds.
    """

    path: Path
    size: int
    sha256: str
    changed: int

    def check_unchanged(self) -> None:
        """Refuse a file that was written to since it was inspected."""
        status = os.stat(self.path)
        if (status.st_size, status.st_mtime_ns) != (self.size, self.changed):
            raise InputError(
                f"'{shown(self.path, 140)}' changed while it was read; run it again with --force"
            )


@dataclass(frozen=True)
class Shard:
    """Sentences that one process embeds into one file.

    Attributes:
        number: from 0.
        first: number of its first sentence.
        texts: the sentences.
    """

    number: int
    first: int
    texts: list[str]


def inspect_input(path: Path) -> InputFile:
    """Find size and SHA-256 of a file."""
    with open_checked(path, what="input") as stream:
        status = os.fstat(stream.fileno())
        sha256 = sha256_stream(stream)
    return InputFile(path=path, size=status.st_size, sha256=sha256, changed=status.st_mtime_ns)


def cut_shards(
    files: Sequence[InputFile],
    reader: TextReader,
    counts: Counts,
    *,
    shard_bytes: int,
    limit: int | None = None,
) -> Iterator[Shard]:
    """Deal the sentences of files into shards, in order.

    They depend on the files and these arguments alone. A shard may hold the end of a file and the
    start of the next; a sentence is never cut.

    Args:
        files: in order.
        reader: how they become sentences.
        counts: told the lines that are not UTF-8.
        shard_bytes: a shard ends with the sentence that reaches so many bytes.
        limit: stop after so many sentences.
    """
    texts: list[str] = []
    number = first = size = 0
    for text in itertools.islice(_texts(files, reader, counts), limit):
        texts.append(text)
        size += len(text) + 1 if text.isascii() else len(text.encode("utf-8", "replace")) + 1
        if size >= shard_bytes:
            yield Shard(number, first, texts)
            number, first, size, texts = number + 1, first + len(texts), 0, []
    if texts:
        yield Shard(number, first, texts)


def _texts(files: Sequence[InputFile], reader: TextReader, counts: Counts) -> Iterator[str]:
    for file in files:
        with open_text(file.path, what="input") as stream:
            yield from reader.texts(stream, str(file.path), counts)
        file.check_unchanged()

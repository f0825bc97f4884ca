"""What the worker processes of `prepare` do, and the requests for it.

inspect    find out what files are
piece      tokenize a block of text and write it as a piece
count      tokenize a block of text and count its words
shard      merge a share of all pieces into a shard

In a block only "\\n" ends a line; one "\\r" before it is dropped, and so is a byte order mark at
the start of a file.
"""

from __future__ import annotations

import codecs
import hashlib
import itertools
import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from elmore.base.io import invalid_utf8
from elmore.base.machine import available_threads
from elmore.base.pool import Pool, Request, Worker
from elmore.corpus.shards import KEYS, Piece, Selection, Shard, merge, write_piece
from elmore.corpus.texts import Position, Segment, TextFile, find_documents, inspect_file
from elmore.text.reading import Counts, Reading

__all__ = ["block_fields", "inspect_files", "open_pool", "start", "tokenize_block"]

_SMALL_CORPUS = 1 << 20  # bytes; not worth starting processes


def open_pool(n_workers: int | None, paths: Sequence[Path]) -> Pool:
    """A pool of the size asked for, or of one that fits the machine and the files.

    One worker is the calling process itself.
    """
    if n_workers is None:
        small = sum(os.path.getsize(path) for path in paths) <= _SMALL_CORPUS
        n_workers = 1 if small else available_threads()
    return Pool(start, n_workers, in_process=n_workers == 1)


def inspect_files(paths: Sequence[Path], held: Sequence[Path], pool: Pool) -> list[TextFile]:
    """Read every file once, to find out what it is."""
    names = [os.fspath(path) for path in [*paths, *held]]
    # Several files in a request: a corpus may be made of a million small ones.
    step = max(1, len(names) // 256)
    requests = (
        Request({"task": "inspect", "paths": names[k : k + step]})
        for k in range(0, len(names), step)
    )
    found = [file for _, reply in pool.map(requests, in_order=True) for file in reply["files"]]
    return [TextFile(**file, heldout=k >= len(paths)) for k, file in enumerate(found)]


def block_fields(
    task: str, files: Sequence[TextFile], segments: Sequence[Segment], reading: Reading, seed: int
) -> dict[str, Any]:
    """The fields of a request to tokenize a block."""
    used = [files[segment.start.file] for segment in segments]
    return {
        "task": task,
        "segments": [asdict(segment) for segment in segments],
        "names": [file.path for file in used],
        "linewise": [file.linewise for file in used],
        "reading": asdict(reading),
        "seed": seed,
    }


# --------------------------------------------------------------------------- in a worker process


def start(setup: Mapping[str, Any]) -> Worker:
    """Make a worker; it needs nothing but its requests."""
    return Worker(_perform)


def _perform(fields: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    task = fields["task"]
    if task == "inspect":
        return {"files": [inspect_file(path) for path in fields["paths"]]}
    if task == "shard":
        return _merge_shard(fields)
    piece, invalid = tokenize_block(
        [Segment(Position(**s["start"]), s["size"]) for s in fields["segments"]],
        data,
        fields["names"],
        fields["linewise"],
        Reading(**fields["reading"]),
        fields["seed"],
    )
    shard = piece.shard
    if task == "count":
        counts = shard.type_counts().tolist()
        return {"words": shard.types, "counts": counts, "tokens": shard.n_tokens}
    path = Path(fields["path"])
    write_piece(path, piece)
    return {
        "bytes": path.stat().st_size,
        "tokens": shard.n_tokens,
        "documents": shard.n_documents,
        "min_hash": int(piece.hashes.min(initial=KEYS)),
        "n_replaced": invalid.replaced,
        "n_skipped": invalid.skipped,
    }


def _merge_shard(fields: Mapping[str, Any]) -> dict[str, Any]:
    limit, n_inputs, held = fields["limit"], fields["n_inputs"], fields["heldout"]
    chosen = Selection(
        low=fields["low"],
        high=fields["high"],
        min_hash=0 if held else limit,
        max_hash=limit if held else KEYS,
    )
    pieces = [(Path(path), chosen) for path in fields["pieces"][:n_inputs]]
    if held:
        pieces += [(Path(path), Selection()) for path in fields["pieces"][n_inputs:]]
    return {"documents": merge(Path(fields["path"]), pieces)}


# --------------------------------------------------------------------------- tokenizing


def tokenize_block(
    segments: Sequence[Segment],
    data: bytes,
    names: Sequence[str],
    linewise: Sequence[bool],
    reading: Reading,
    seed: int,
) -> tuple[Piece, Counts]:
    """Tokenize a block, and count the lines that are not UTF-8.

    Raises:
        InputError: a line is not UTF-8.
    """
    starts = list(itertools.accumulate((s.size for s in segments), initial=0))
    numbers = _Numbers()
    tokens, sentences, documents = array("i"), array("q", [0]), array("q", [0])
    keys, hashes = array("q"), array("q")
    counts = Counts()
    for key, k, a, b in _shuffled(segments, data, linewise, seed):
        try:
            # All of it first: invalid documents are rare, and line by line is slower.
            text = data[a:b].decode("utf-8")
        except UnicodeDecodeError:
            line = segments[k].start.line + data.count(b"\n", starts[k], a)
            text = _decode(data[a:b], reading.errors, names[k], line, counts)
        if "\r" in text:
            text = text.replace("\r\n", "\n").removesuffix("\r")
        for sentence in reading.document(text):
            if sentence:
                tokens.extend(map(numbers.__getitem__, sentence))
                sentences.append(len(tokens))
        if len(sentences) - 1 > documents[-1]:
            documents.append(len(sentences) - 1)
            keys.append(key)
            # By its text, without the blank lines that follow it: copies of a document are held out
            # together, wherever they are.
            hashes.append(_key(seed, "hold out", text.rstrip(" \t\r\n")))
    shard = Shard(
        np.array(tokens, np.int32),
        np.array(sentences, np.int64),
        np.array(documents, np.int64),
        list(numbers),
    )
    piece = Piece(shard, np.array(keys, np.int64), np.array(hashes, np.int64))
    return piece, counts


def _shuffled(
    segments: Sequence[Segment], data: bytes, linewise: Sequence[bool], seed: int
) -> list[tuple[int, int, int, int]]:
    """The documents of a block, sorted by key: key, segment, start and end of each."""
    found = []
    place = 0
    for k, segment in enumerate(segments):
        end = place + segment.size
        for number, (a, b) in enumerate(find_documents(data, place, end, linewise[k])):
            if segment.start.offset == 0 and number == 0 and data.startswith(codecs.BOM_UTF8, a):
                a += len(codecs.BOM_UTF8)
            # By its place: copies of a document are dealt apart.
            key = _key(seed, "deal", f"{segment.start.file}/{segment.start.document + number}")
            found.append((key, k, a, b))
        place = end
    return sorted(found)


class _Numbers(dict[str, int]):
    """Numbers words in the order in which they occur."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


def _key(seed: int, purpose: str, text: str) -> int:
    """A number of 62 bits that depends on all arguments."""
    # The purpose keeps the two random choices independent of each other.
    digest = hashlib.blake2b(
        text.encode("utf-8"), digest_size=8, key=f"{seed}".encode(), person=purpose.encode()
    )
    return int.from_bytes(digest.digest(), "little") % KEYS


def _decode(data: bytes, errors: str, name: str, first: int, counts: Counts) -> str:
    """Decode a document that is not UTF-8, line by line."""
    lines: list[str] = []
    for number, line in enumerate(data.split(b"\n"), first):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            if errors == "strict":
                raise invalid_utf8(error.start, name, number, choice=True) from None
            if errors == "replace":
                counts.replaced += 1
                lines.append(line.decode("utf-8", "replace"))
            else:
                counts.skipped += 1
    return "\n".join(lines)

"""What the worker processes of `prepare` do.

A block of text becomes a piece: tokenized, its documents in random order. A shard takes its share
of documents from all pieces, so that the corpus is shuffled without being in memory.

In a block only "\\n" ends a line; one "\\r" before it is dropped, and so is a byte order mark at
the start of a file.
"""

from __future__ import annotations

import codecs
import hashlib
import itertools
import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.io import invalid_utf8
from elmore.base.machine import available_threads
from elmore.base.pool import Pool, Worker
from elmore.corpus.prepared import Shard, offsets, shard_tensors, type_tensors, write_shard
from elmore.corpus.texts import Segment, TextFile, find_documents, inspect_file
from elmore.formats.containers.arrays import Arrays
from elmore.formats.containers.safetensors_files import read_safetensors
from elmore.text.reading import Counts, Reading

KEYS = 1 << 62  # keys and hashes of documents are below this number
Bounds = tuple[int, int]  # the upper one is exclusive
_SMALL_CORPUS = 1 << 20  # bytes; not worth starting processes


def open_pool(n_workers: int | None, paths: Sequence[Path]) -> Pool:
    """A pool of the size asked for, or of one that fits the machine and the files.

    One worker is the calling process itself.
    """
    if n_workers is None:
        small = sum(os.path.getsize(path) for path in paths) <= _SMALL_CORPUS
        n_workers = 1 if small else available_threads()
    return Pool(_start, n_workers, in_process=n_workers == 1)


def _start(setup: Mapping[str, Any]) -> Worker:
    return Worker(lambda call: call())


def inspect_files(paths: Sequence[Path], held: Sequence[Path], pool: Pool) -> list[TextFile]:
    """Read every file once, to find out what it is."""
    names = [(os.fspath(path), k >= len(paths)) for k, path in enumerate([*paths, *held])]
    # Several files in a request: a corpus may be made of a million small ones.
    step = max(1, len(names) // 256)
    requests = (partial(_inspect, names[k : k + step]) for k in range(0, len(names), step))
    return [file for _, reply in pool.map(requests, in_order=True) for file in reply["files"]]


def _inspect(names: Iterable[tuple[str, bool]]) -> dict[str, Any]:
    return {"files": [inspect_file(*name) for name in names]}


def make_piece(
    path: Path, segments: Sequence[Segment], reading: Reading, seed: int, data: bytes
) -> dict[str, Any]:
    """Tokenize a block of text and write it as a piece; what the journal records."""
    shard, keys, hashes, invalid = tokenize_block(segments, reading, seed, data)
    write_shard(path, {**shard_tensors(shard), "keys": keys, "hashes": hashes})
    return {
        "bytes": path.stat().st_size,
        "tokens": shard.n_tokens,
        "documents": len(keys),
        "min_hash": int(hashes.min(initial=KEYS)),
        "n_replaced": invalid.replaced,
        "n_skipped": invalid.skipped,
    }


# --------------------------------------------------------------------------- tokenizing


def tokenize_block(
    segments: Sequence[Segment], reading: Reading, seed: int, data: bytes
) -> tuple[Shard, NDArray[np.int64], NDArray[np.int64], Counts]:
    """Tokenize a block, and count the lines that are not UTF-8.

    Returns:
        the documents; the random numbers that decide on shard and order, rising, (n_documents,);
        hashes of their text, which decide on the held-out ones, (n_documents,); the counts.

    Raises:
        InputError: a line is not UTF-8.
    """
    starts = list(itertools.accumulate((s.size for s in segments), initial=0))
    numbers = _Numbers()
    tokens, sentences, documents = array("i"), array("q", [0]), array("q", [0])
    keys, hashes = array("q"), array("q")
    counts = Counts()
    for key, k, a, b in _shuffled(segments, seed, data):
        try:
            # All of it first: invalid documents are rare, and line by line is slower.
            text = data[a:b].decode("utf-8")
        except UnicodeDecodeError:
            line = segments[k].start.line + data.count(b"\n", starts[k], a)
            text = _decode(data[a:b], reading.errors, segments[k].file.path, line, counts)
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
    return shard, np.array(keys, np.int64), np.array(hashes, np.int64), counts


def _shuffled(
    segments: Sequence[Segment], seed: int, data: bytes
) -> list[tuple[int, int, int, int]]:
    """The documents of a block, sorted by key: key, segment, start and end of each."""
    found = []
    place = 0
    for k, segment in enumerate(segments):
        end = place + segment.size
        for number, (a, b) in enumerate(find_documents(data, place, end, segment.file.linewise)):
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


# --------------------------------------------------------------------------- merging


def merge(path: Path, pieces: Iterable[tuple[Path, Bounds]], bounds: Bounds) -> dict[str, Any]:
    """Write a shard of documents of pieces, sorted by their keys; none if there are none.

    The documents have keys within `bounds`, and hashes within those of their piece.
    """
    # By their bytes: types get new numbers without being decoded.
    numbers: dict[bytes, int] = {}
    tokens: list[NDArray[np.int32]] = []
    lengths: list[NDArray[np.int64]] = []  # of sentences, in tokens
    sizes: list[NDArray[np.int64]] = []  # of documents, in sentences
    keys: list[NDArray[np.int64]] = []
    for source, (low, high) in pieces:
        with read_safetensors(source, what=str(source)) as view:
            own = view.read("keys")
            start, end = np.searchsorted(own, bounds).tolist()
            part = view.read("hashes")[start:end]
            chosen = np.flatnonzero((part >= low) & (part < high)) + start
            if not len(chosen):
                continue
            keys.append(own[chosen].copy())
            taken = _reorder(
                view.read("tokens"), view.read("sentences"), view.read("documents"), chosen
            )
            tokens.append(_renumber(view, taken[0], numbers))
            lengths.append(taken[1])
            sizes.append(taken[2])
    if not keys:
        return {"documents": 0}
    # Stable: of equal keys the earlier piece comes first, on every machine.
    order = np.argsort(np.concatenate(keys), kind="stable")
    values, sentences, documents = _reorder(
        np.concatenate(tokens),
        offsets(np.concatenate(lengths)),
        offsets(np.concatenate(sizes)),
        order,
    )
    arrays = type_tensors(list(numbers))
    arrays |= {"tokens": values, "sentences": offsets(sentences), "documents": offsets(documents)}
    write_shard(path, arrays)
    return {"documents": len(order)}


def _reorder(
    tokens: NDArray[np.int32],
    sentences: NDArray[np.int64],
    documents: NDArray[np.int64],
    chosen: NDArray[np.int64],
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Take documents in a given order: their tokens, sentence lengths and document sizes."""
    sizes = np.diff(documents)[chosen]
    which = _ranges(documents[chosen], sizes)
    lengths = np.diff(sentences)[which]
    return tokens[_ranges(sentences[which], lengths)], lengths, sizes


def _ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Join the ranges start … start + length - 1."""
    places = offsets(lengths)
    return np.repeat(starts - places[:-1], lengths) + np.arange(places[-1])


def _renumber(
    view: Arrays, tokens: NDArray[np.int32], numbers: dict[bytes, int]
) -> NDArray[np.int32]:
    """Change the numbers of a piece's tokens to those of the shard, which may be new."""
    places = view.read("type_offsets")
    used = np.zeros(len(places) - 1, np.bool_)
    used[tokens] = True
    which = np.flatnonzero(used)
    text = view.read("type_bytes").tobytes()
    table = np.zeros(len(used), np.int32)
    table[which] = [
        numbers.setdefault(text[a:b], len(numbers))
        for a, b in zip(places[which].tolist(), places[which + 1].tolist(), strict=True)
    ]
    return table[tokens]

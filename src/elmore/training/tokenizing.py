r"""From a block of text to a piece of tokenized documents.

Only "\n" ends a line; one "\r" before it is dropped, and so is a byte order mark at the start of a
file.
"""

from __future__ import annotations

import codecs
import hashlib
import itertools
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elmore._io import invalid_utf8
from elmore.text.reading import Reading
from elmore.training.blocks import Segment
from elmore.training.corpus import find_documents
from elmore.training.shards import KEYS, Piece, Shard

__all__ = ["Tokenized", "tokenize_block"]


@dataclass(frozen=True)
class Tokenized:
    """A block as a piece, and the lines that were not UTF-8."""

    piece: Piece
    n_replaced: int
    n_skipped: int


@dataclass
class _Invalid:
    replaced: int = 0
    skipped: int = 0


def tokenize_block(
    segments: Sequence[Segment],
    data: bytes,
    names: Sequence[str],
    linewise: Sequence[bool],
    reading: Reading,
    seed: int,
) -> Tokenized:
    """Tokenize a block.

    Args:
        segments: where the text is from.
        data: the text.
        names: the file of each segment, for messages.
        linewise: whether the file of each segment has no blank lines.
        reading: how text becomes tokens.
        seed: shuffles the documents.

    Raises:
        InputError: a line is not UTF-8.
    """
    starts = list(itertools.accumulate((s.size for s in segments), initial=0))
    numbers = _Numbers()
    tokens, sentences, documents = array("i"), array("q", [0]), array("q", [0])
    keys, hashes = array("q"), array("q")
    invalid = _Invalid()
    for key, k, a, b in _shuffled(segments, data, linewise, seed):
        try:
            text = data[a:b].decode("utf-8")
        except UnicodeDecodeError:
            line = segments[k].start.line + data.count(b"\n", starts[k], a)
            text = _decode(data[a:b], reading.errors, names[k], line, invalid)
        if "\r" in text:
            text = text.replace("\r\n", "\n").removesuffix("\r")
        for sentence in reading.document(text):
            if sentence:
                tokens.extend(map(numbers.__getitem__, sentence))
                sentences.append(len(tokens))
        if len(sentences) - 1 > documents[-1]:
            documents.append(len(sentences) - 1)
            keys.append(key)
            hashes.append(_key(seed, "hold out", text.rstrip(" \t\r\n")))
    shard = Shard(
        np.array(tokens, np.int32),
        np.array(sentences, np.int64),
        np.array(documents, np.int64),
        list(numbers),
    )
    piece = Piece(shard, np.array(keys, np.int64), np.array(hashes, np.int64))
    return Tokenized(piece, invalid.replaced, invalid.skipped)


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


def _decode(data: bytes, errors: str, name: str, first: int, invalid: _Invalid) -> str:
    """Decode a document that is not UTF-8, line by line."""
    lines: list[str] = []
    for number, line in enumerate(data.split(b"\n"), first):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            if errors == "strict":
                raise invalid_utf8(error.start, name, number, choice=True) from None
            if errors == "replace":
                invalid.replaced += 1
                lines.append(line.decode("utf-8", "replace"))
            else:
                invalid.skipped += 1
    return "\n".join(lines)

"""A shard: a few hundred documents of tokenized text in one safetensors file.

Tokens are numbers into the shard's own list of types, so that a shard can be read without any other
file and without a list of all types of the corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_path
from elmore.base.messages import shown
from elmore.errors import FormatError
from elmore.formats.containers.safetensors_files import (
    SafetensorsView,
    read_safetensors,
    write_safetensors,
)

__all__ = [
    "KEYS",
    "Piece",
    "Selection",
    "Shard",
    "merge",
    "read_shard",
    "write_piece",
    "write_shard",
]

KEYS = 1 << 62  # keys and hashes of documents are below this number

_FORMAT = "elmore-shard"
_DTYPES = {
    "tokens": "I32",
    "sentences": "I64",
    "documents": "I64",
    "type_bytes": "I8",
    "type_offsets": "I64",
}


@dataclass(frozen=True)
class Shard:
    """Documents of tokenized sentences, without sentence markers.

    Attributes:
        tokens: numbers of types, (n_tokens,).
        sentences: where each sentence starts in `tokens`, and the end, (n_sentences + 1,).
        documents: where each document starts in `sentences`, and the end, (n_documents + 1,).
        types: the distinct tokens.
    """

    tokens: NDArray[np.int32]
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]
    types: list[str]

    @property
    def n_tokens(self) -> int:
        """Tokens of all sentences."""
        return len(self.tokens)

    @property
    def n_sentences(self) -> int:
        """Sentences of all documents."""
        return len(self.sentences) - 1

    @property
    def n_documents(self) -> int:
        """Documents."""
        return len(self.documents) - 1

    def sentence(self, index: int) -> list[str]:
        """The tokens of a sentence."""
        start, end = self.sentences[index : index + 2]
        return [self.types[k] for k in self.tokens[start:end].tolist()]

    def type_counts(self) -> NDArray[np.int64]:
        """How often each type occurs, (n_types,)."""
        return np.bincount(self.tokens, minlength=len(self.types))


def write_shard(path: Path | str, shard: Shard, *, overwrite: bool = False) -> None:
    """Write a shard; its bytes depend on nothing else, and its name appears at the end."""
    _write(Path(path), _tensors(shard), overwrite)


def read_shard(path: Path | str) -> Shard:
    """Read a shard.

    Raises:
        FormatError: it is damaged, or not a shard.
    """
    path = Path(path)
    with read_safetensors(path, what=str(path)) as view:
        _check_names(view, path)
        arrays = {name: np.array(view.read(name)) for name in _DTYPES}
    _check_offsets(arrays["sentences"], len(arrays["tokens"]), "sentences", path)
    _check_offsets(arrays["documents"], len(arrays["sentences"]) - 1, "documents", path)
    _check_offsets(arrays["type_offsets"], len(arrays["type_bytes"]), "type_offsets", path)
    tokens, n_types = arrays["tokens"], len(arrays["type_offsets"]) - 1
    if len(tokens) and not (int(tokens.min()) >= 0 and int(tokens.max()) < n_types):
        raise _damaged(path, f"tokens outside its {n_types} types")
    words = _words(arrays["type_bytes"], arrays["type_offsets"])
    try:
        types = [word.decode("utf-8") for word in words]
    except UnicodeDecodeError:
        raise _damaged(path, "types that are not UTF-8") from None
    if len(set(types)) != n_types:
        raise _damaged(path, "a type twice")
    return Shard(tokens, arrays["sentences"], arrays["documents"], types)


def _tensors(shard: Shard) -> dict[str, NDArray[Any]]:
    return _with_types(
        [word.encode("utf-8") for word in shard.types],
        tokens=shard.tokens.astype(np.int32, copy=False),
        sentences=shard.sentences.astype(np.int64, copy=False),
        documents=shard.documents.astype(np.int64, copy=False),
    )


def _with_types(words: Sequence[bytes], **arrays: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {
        **arrays,
        "type_bytes": np.frombuffer(b"".join(words), np.int8),
        "type_offsets": _offsets(np.fromiter(map(len, words), np.int64, len(words))),
    }


def _write(path: Path, tensors: dict[str, NDArray[Any]], overwrite: bool) -> None:
    with atomic_path(path, overwrite=overwrite) as temporary:
        write_safetensors(temporary, tensors, {"format": _FORMAT})


def _words(data: NDArray[np.int8], offsets: NDArray[np.int64]) -> list[bytes]:
    text, places = data.tobytes(), offsets.tolist()
    return [text[a:b] for a, b in pairwise(places)]


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _check_names(view: SafetensorsView, path: Path) -> None:
    found = view.names()
    for name, dtype in _DTYPES.items():
        if name not in found or found[name].dtype != dtype or len(found[name].shape) != 1:
            raise FormatError(
                f"'{shown(path, 120)}' has no list '{name}' of type {dtype}, so it is not a shard; "
                "pass a file that elmore prepare wrote"
            )


def _check_offsets(offsets: NDArray[np.int64], end: int, name: str, path: Path) -> None:
    # They rise strictly: prepare writes no empty sentence, document or type.
    complete = len(offsets) >= 1 and offsets[0] == 0 and offsets[-1] == end
    if not complete or bool((np.diff(offsets) <= 0).any()):
        raise _damaged(path, f"{name} that do not rise from 0 to {end}")


def _damaged(path: Path, problem: str) -> FormatError:
    return FormatError(f"'{shown(path, 120)}' is damaged: it has {problem}; prepare it again")


# --------------------------------------------------------------------------- pieces


@dataclass(frozen=True)
class Piece:
    """What one block of text became: a shard whose documents are sorted by their keys.

    Attributes:
        shard: the documents.
        keys: random numbers that decide shard and order, rising, (n_documents,).
        hashes: hashes of the documents' text, which decide about the held-out ones, (n_documents,).
    """

    shard: Shard
    keys: NDArray[np.int64]
    hashes: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which documents of the pieces a shard is made of; `high` and `max_hash` are exclusive."""

    low: int = 0
    high: int = KEYS
    min_hash: int = 0
    max_hash: int = KEYS

    def documents(self, keys: NDArray[np.int64], hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the selected documents of a piece."""
        start, end = np.searchsorted(keys, [self.low, self.high]).tolist()
        part = hashes[start:end]
        chosen = (part >= self.min_hash) & (part < self.max_hash)
        numbers: NDArray[np.int64] = np.flatnonzero(chosen) + start
        return numbers


def write_piece(path: Path, piece: Piece) -> None:
    """Write a piece, over an old one."""
    tensors = {**_tensors(piece.shard), "keys": piece.keys, "hashes": piece.hashes}
    _write(path, tensors, overwrite=True)


def merge(path: Path, pieces: Iterable[tuple[Path, Selection]]) -> int:
    """Write a shard of the selected documents, sorted by their keys.

    Args:
        path: the shard to make; replaced if it exists, not made if nothing is selected.
        pieces: files and what to take from each.

    Returns:
        the number of documents.
    """
    # By their bytes: types get new numbers without being decoded.
    numbers: dict[bytes, int] = {}
    tokens: list[NDArray[np.int32]] = []
    lengths: list[NDArray[np.int64]] = []  # of sentences, in tokens
    sizes: list[NDArray[np.int64]] = []  # of documents, in sentences
    keys: list[NDArray[np.int64]] = []
    for source, selection in pieces:
        with read_safetensors(source, what=str(source)) as view:
            own = view.read("keys")
            chosen = selection.documents(own, view.read("hashes"))
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
        return 0
    # Stable: of equal keys the earlier piece comes first, on every machine.
    order = np.argsort(np.concatenate(keys), kind="stable")
    values, sentences, documents = _reorder(
        np.concatenate(tokens),
        _offsets(np.concatenate(lengths)),
        _offsets(np.concatenate(sizes)),
        order,
    )
    tensors = _with_types(
        list(numbers), tokens=values, sentences=_offsets(sentences), documents=_offsets(documents)
    )
    _write(path, tensors, overwrite=True)
    return len(order)


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
    places = _offsets(lengths)
    return np.repeat(starts - places[:-1], lengths) + np.arange(places[-1])


def _renumber(
    view: SafetensorsView, tokens: NDArray[np.int32], numbers: dict[bytes, int]
) -> NDArray[np.int32]:
    """Change the numbers of a piece's tokens to those of the shard, which may be new."""
    offsets = view.read("type_offsets")
    used = np.zeros(len(offsets) - 1, np.bool_)
    used[tokens] = True
    which = np.flatnonzero(used)
    text = view.read("type_bytes").tobytes()
    table = np.zeros(len(used), np.int32)
    table[which] = [
        numbers.setdefault(text[a:b], len(numbers))
        for a, b in zip(offsets[which].tolist(), offsets[which + 1].tolist(), strict=True)
    ]
    return table[tokens]

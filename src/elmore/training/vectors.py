"""Word vectors that others trained, to start a word table from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmore._io import open_checked, read_lines
from elmore.errors import ConfigError, InputError
from elmore.limits import LIMITS
from elmore.text.vocabulary import Vocabulary
from elmore.text.word_vectors import vector_lines, vector_of

__all__ = ["read_vectors"]


def read_vectors(
    path: Path, vocabulary: Vocabulary, dim: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Read the vectors of a vocabulary's words.

    Args:
        path: word2vec or GloVe text ("word v1 ... vn" a line, with or without a first line of
            counts), or a matrix `NAME.npy` with its words in `NAME.words`, one a line.
        vocabulary: which words are wanted.
        dim: how many numbers a vector must have.

    Returns:
        ids of the words that were found, (n,), and their vectors, (n, dim).
    """
    found = _read_npy(path, vocabulary, dim) if path.suffix == ".npy" else None
    if found is None:
        found = _read_text(path, vocabulary, dim)
    ids, vectors = found
    if not len(ids):
        raise InputError(f"'{path}' has no word of the vocabulary; is it the right file?")
    return ids, vectors


def _read_text(
    path: Path, vocabulary: Vocabulary, dim: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    ids: list[int] = []
    rows: list[NDArray[np.float32]] = []
    for number, word, values in vector_lines(path):
        if len(values) != dim:
            raise InputError(
                f"{len(values)} numbers, expected {dim}; use vectors of that size or set "
                "model.projection_dim",
                file=str(path),
                line=number,
            )
        known = vocabulary.find(word)
        if known is not None:
            rows.append(vector_of(values, path, number))
            ids.append(known)
    empty = np.zeros((0, dim), np.float32)
    return np.array(ids, np.int64), np.stack(rows) if rows else empty


def _read_npy(
    path: Path, vocabulary: Vocabulary, dim: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    words_path = path.with_suffix(".words")
    with open_checked(words_path, what="words of the vectors") as stream:
        limit = LIMITS.vocabulary_line_bytes
        words = [line for _, line in read_lines(stream, what=str(words_path), max_line=limit)]
    try:
        # No pickles: a file of objects is refused by numpy itself.
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' cannot be read ({error}); save it with numpy.save") from None
    if not isinstance(matrix, np.ndarray) or matrix.dtype.kind not in "biuf":
        raise InputError(f"'{path}' is no matrix of numbers; save one with numpy.save")
    if matrix.shape != (len(words), dim):
        raise ConfigError(
            f"'{path}' has shape {matrix.shape}, expected {(len(words), dim)} from '{words_path}' "
            "and model.projection_dim; use matching files"
        )
    pairs = [
        (known, k) for k, word in enumerate(words) if (known := vocabulary.find(word)) is not None
    ]
    vectors = np.array(matrix[[k for _, k in pairs]], np.float32)
    if not np.isfinite(vectors).all():
        raise InputError(f"'{path}' has values that are no finite numbers; make it again")
    return np.array([known for known, _ in pairs], np.int64), vectors

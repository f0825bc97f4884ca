"""Static word vectors from a file, the control that every contextual vector must beat."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmore.errors import FormatError, InputError
from elmore.text.data_files import numbered_lines

__all__ = ["WordVectors", "read_word_vectors"]


class WordVectors:
    """Words and their vectors; a word that is missing as it stands is sought in lower case.

    Args:
        words: the words.
        vectors: (n_words, dim).
    """

    def __init__(self, words: list[str], vectors: NDArray[np.float32]) -> None:
        self.words = words
        self.vectors = vectors
        self._rows = {word: row for row, word in reversed(list(enumerate(words)))}

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return int(self.vectors.shape[1])

    def row(self, word: str) -> int | None:
        """Give the row of a word, or None."""
        row = self._rows.get(word)
        return self._rows.get(word.lower()) if row is None else row

    def take(self, words: Collection[str]) -> NDArray[np.float32]:
        """Give the vectors of words, zeros for those that are unknown, (n, dim)."""
        rows = [self.row(word) for word in words]
        result = np.zeros((len(rows), self.dim), np.float32)
        known = [k for k, row in enumerate(rows) if row is not None]
        result[known] = self.vectors[[row for row in rows if row is not None]]
        return result

    def known(self, words: Collection[str]) -> float:
        """Give the share of words that have a vector."""
        return sum(self.row(word) is not None for word in words) / max(1, len(words))


def read_word_vectors(path: Path) -> WordVectors:
    """Read word vectors.

    Args:
        path: word2vec or GloVe text ("word v1 ... vn" a line, with or without a first line of
            counts), plain or packed; or a matrix `NAME.npy` with its words, one a line, beside it
            in `NAME.words`, `NAME.words.txt` or the same without the last part of NAME.

    Raises:
        InputError: a line does not fit.
    """
    return _read_npy(path) if path.suffix == ".npy" else _read_text(path)


def _read_text(path: Path) -> WordVectors:
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    for number, line in numbered_lines(path):
        word, _, rest = line.rstrip(" \t").partition(" ")
        values = rest.split(" ")
        if number == 1 and len(values) == 1 and word.isdigit():
            continue  # word2vec's first line: number of words and dimensions
        try:
            row = np.array(values, np.float32)
        except ValueError:
            row = np.array([np.nan], np.float32)
        if not np.isfinite(row).all():
            raise InputError(
                "a value is no number; is this word2vec text?", file=str(path), line=number
            )
        if rows and len(row) != len(rows[0]):
            raise InputError(
                f"{len(row)} numbers, expected {len(rows[0])}; give every word as many",
                file=str(path),
                line=number,
            )
        words.append(word)
        rows.append(row)
    if not rows:
        raise InputError("there is no vector; is this word2vec text?", file=str(path))
    return WordVectors(words, np.stack(rows))


def _read_npy(path: Path) -> WordVectors:
    stems = [path.with_suffix(""), path.with_suffix("").with_suffix("")]
    names = [stem.parent / (stem.name + end) for stem in stems for end in (".words", ".words.txt")]
    words_path = next((name for name in names if name.exists()), None)
    if words_path is None:
        raise InputError(
            f"no words beside it; put them, one a line, into '{names[1].name}'", file=str(path)
        )
    words = [line for _, line in numbered_lines(words_path)]
    try:
        matrix = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FormatError(f"'{path}' is no matrix: {error}; write it with numpy.save") from None
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or len(matrix) != len(words):
        raise InputError(
            f"{len(words)} words but a matrix of shape {getattr(matrix, 'shape', None)}; give one "
            "row for each",
            file=str(words_path),
        )
    vectors = matrix.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise InputError("a value is not finite; check the file", file=str(path))
    return WordVectors(words, vectors)

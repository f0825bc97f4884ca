"""Static word vectors from a file, the control that every contextual vector must beat."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmore._atomic import atomic_file
from elmore._io import open_checked
from elmore._messages import shown
from elmore.errors import ConfigError, FormatError, InputError
from elmore.text.reading import numbered_lines

__all__ = [
    "WordVectors",
    "is_binary",
    "read_word_vectors",
    "vector_lines",
    "vector_of",
    "write_word_vectors",
]

# What the original word2vec and gensim call their binary files.
_BINARY = ".bin"
# Of the line of counts, and of a word.
_MOST_BYTES = 1 << 16
# word2vec's first line: number of words and dimensions.
_COUNTS = re.compile("[0-9]{1,11} ([0-9]{1,11})")


class WordVectors:
    """Words and their vectors; a word that is missing as it stands is sought in lower case.

    Of a word that is there twice, the first vector counts.

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
            counts), plain or packed; word2vec's binary form, called `NAME.bin`; or a matrix
            `NAME.npy` with its words, one a line, beside it in `NAME.words`, `NAME.words.txt` or
            the same without the last part of NAME.

    Raises:
        InputError: a line does not fit.
    """
    if is_binary(path):
        return _read_binary(path)
    return _read_npy(path) if path.suffix == ".npy" else _read_text(path)


def vector_lines(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield line number, word and values of word2vec or GloVe text, plain or packed.

    The first line tells how many values there are, all have as many. A word is what stands before
    them: GloVe 840B has words with spaces.

    Raises:
        InputError: a line has another number of values.
    """
    dim = 0
    for number, line in numbered_lines(path):
        line = line.rstrip(" \t")
        if number == 1:
            counts = _COUNTS.fullmatch(line)
            dim = int(counts[1]) if counts else line.count(" ")
            if dim < 1:
                raise InputError(
                    "there is no vector; is this word2vec text?", file=str(path), line=1
                )
            if counts:
                continue
        word, *values = line.rsplit(" ", dim)
        found = len(values) + (_n_numbers(word) if " " in word else 0)
        if found != dim:
            raise InputError(
                f"{found} numbers, expected {dim}; give every word as many",
                file=str(path),
                line=number,
            )
        yield number, word, values


def _n_numbers(word: str) -> int:
    """Count the numbers at the end of a word with spaces: values that are too many."""

    def is_number(text: str) -> bool:
        try:
            return math.isfinite(float(text))
        except ValueError:
            return False

    parts = word.split(" ")[:0:-1]
    return sum(1 for _ in itertools.takewhile(is_number, parts))


def vector_of(values: list[str], path: Path, line: int) -> NDArray[np.float32]:
    """Turn the values of a line into numbers.

    Raises:
        InputError: one of them is no finite number.
    """
    try:
        row = np.array(values, np.float32)
    except ValueError:
        row = np.array([np.nan], np.float32)
    if not np.isfinite(row).all():
        raise InputError("a value is no number; is this word2vec text?", file=str(path), line=line)
    return row


def is_binary(path: Path) -> bool:
    """Tell whether a name is that of word2vec's binary form."""
    return path.suffix.lower() == _BINARY


def write_word_vectors(
    path: Path,
    rows: Iterable[tuple[str, NDArray[np.float32]]],
    *,
    n_words: int,
    dim: int,
    overwrite: bool = False,
) -> None:
    """Write word vectors as word2vec does; gensim's `KeyedVectors` and many others read them.

    Args:
        path: the file to make, binary if it is called `NAME.bin`, else text.
        rows: words with their vectors, (dim,) each; taken one by one.
        n_words: how many there will be.
        dim: size of a vector.
        overwrite: replace a file that is there.

    Raises:
        InputError: a word has a space or line end, for which the format has no place.
        ConfigError: there are fewer or more rows than said.
    """
    binary, written = is_binary(path), 0
    with atomic_file(path, overwrite=overwrite) as stream:
        stream.write(f"{n_words} {dim}\n".encode())
        for word, vector in rows:
            if not word or " " in word or "\n" in word:
                raise InputError(
                    f"'{shown(word, 60)}' cannot stand in a word2vec file, which ends a word at a "
                    "space; leave it out or join it with _"
                )
            numbers = np.asarray(vector, "<f4")
            if numbers.shape != (dim,):
                raise ConfigError(f"a vector of shape {numbers.shape}; give {dim} numbers each")
            # str() of a float32 is the shortest text that gives the same float32 again.
            values = numbers.tobytes() if binary else " ".join(map(str, numbers)).encode()
            stream.write(word.encode("utf-8") + b" " + values + b"\n")
            written += 1
        if written != n_words:
            raise ConfigError(f"{written} word vectors where {n_words} were announced")


def _read_text(path: Path) -> WordVectors:
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    for number, word, values in vector_lines(path):
        words.append(word)
        rows.append(vector_of(values, path, number))
    if not rows:
        raise InputError("there is no vector; is this word2vec text?", file=str(path))
    return WordVectors(words, np.stack(rows))


def _read_binary(path: Path) -> WordVectors:
    with open_checked(path, what="word vectors") as stream:
        counts = stream.readline(_MOST_BYTES).split()
        if len(counts) != 2 or not all(count.isdigit() and len(count) < 12 for count in counts):
            raise InputError("no line of two counts at the start; is it word2vec?", file=str(path))
        n_words, dim = map(int, counts)
        data = stream.read()
    # The shortest word with its space: checked before any memory is taken for the vectors.
    if not n_words or not dim or n_words * (4 * dim + 2) > len(data) + n_words:
        raise InputError(
            f"{n_words} vectors of {dim} numbers do not fit into {len(data)} bytes; copy it again",
            file=str(path),
        )
    words: list[str] = []
    vectors = np.empty((n_words, dim), np.float32)
    start = 0
    for row in range(n_words):
        space = data.find(b" ", start, start + _MOST_BYTES)
        end = space + 1 + 4 * dim
        if space < 0 or end > len(data):
            raise InputError(f"it ends in word {row + 1}; copy it again", file=str(path))
        # Some programs end a row with a line end, some do not.
        words.append(data[start:space].decode("utf-8", "replace").lstrip("\n"))
        vectors[row] = np.frombuffer(data, "<f4", dim, space + 1)
        start = end
    if not np.isfinite(vectors).all():
        raise InputError("a value is not finite; check the file", file=str(path))
    return WordVectors(words, vectors)


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
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"a matrix of {matrix.dtype}; give one of numbers", file=str(path))
    vectors = matrix.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise InputError("a value is not finite; check the file", file=str(path))
    return WordVectors(words, vectors)

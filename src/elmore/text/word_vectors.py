"""Files of static word vectors.

They are the baseline that contextual vectors must beat, and an input of tasks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_file
from elmore.base.io import open_checked
from elmore.base.messages import shown
from elmore.errors import ConfigError, FormatError, InputError
from elmore.text.reading import numbered_lines

# The longest line of counts, and the longest word.
_MAX_BYTES = 1 << 16
# word2vec's first line: number of words and dimensions.
_COUNTS = re.compile("[0-9]{1,11} ([0-9]{1,11})")


# Line number or None, word and values.
_Row: TypeAlias = tuple[int | None, str, list[str] | NDArray[Any]]


class WordVectors:
    """Words and their vectors; a word that is missing is looked up again in lower case.

    If a word occurs twice, the first vector counts.

    Args:
        words: the words.
        vectors: (n_words, dim).
    """

    def __init__(self, words: list[str], vectors: NDArray[np.float32]) -> None:
        self.words = words
        self.vectors = vectors
        # Reversed: of equal words the first is entered last, and stays.
        self._rows = {word: row for row, word in reversed(list(enumerate(words)))}

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return int(self.vectors.shape[1])

    def row(self, word: str) -> int | None:
        """The row of a word, or None."""
        row = self._rows.get(word)
        return self._rows.get(word.lower()) if row is None else row

    def take(self, words: Collection[str]) -> NDArray[np.float32]:
        """The vectors of words, (n, dim); zeros for unknown words."""
        rows = [self.row(word) for word in words]
        result = np.zeros((len(rows), self.dim), np.float32)
        known = [k for k, row in enumerate(rows) if row is not None]
        result[known] = self.vectors[[row for row in rows if row is not None]]
        return result

    def known(self, words: Collection[str]) -> float:
        """The share of words that have a vector."""
        return sum(self.row(word) is not None for word in words) / max(1, len(words))


def read_word_vectors(path: Path) -> WordVectors:
    """Read word vectors.

    Args:
        path: word2vec or GloVe text ("word v1 ... vn" on each line, with or without a first line
            of counts), compressed or not; word2vec's binary form, called `NAME.bin`; or a matrix
            `NAME.npy` with its words, one per line, beside it in `NAME.words`, `NAME.words.txt`
            or the same without the last part of NAME.

    Raises:
        InputError: a line does not fit, or there is no vector.
    """
    read = _npy_rows if path.suffix == ".npy" else _text_rows
    rows: list[tuple[str, NDArray[np.float32]]] = []
    for line, word, values in (_binary_rows if is_binary(path) else read)(path):
        try:
            vector = np.array(values, np.float32)
        except ValueError:
            vector = np.array([np.nan], np.float32)
        if not np.isfinite(vector).all():
            problem = "a value is not a finite number; is this a file of word vectors?"
            raise InputError(problem, file=str(path), line=line)
        rows.append((word, vector))
    if not rows:
        raise InputError("there is no vector; is this the right file?", file=str(path))
    return WordVectors([word for word, _ in rows], np.array([row for _, row in rows]))


def is_binary(path: Path) -> bool:
    """Whether a name is one that word2vec and gensim give their binary files."""
    return path.suffix.lower() == ".bin"


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
        n_words: how many there will be; the format starts with this number.
        dim: size of a vector.
        overwrite: replace an existing file.

    Raises:
        InputError: a word has a space or line end, which the format cannot store.
        ConfigError: there are fewer or more rows than `n_words`.
    """
    binary, written = is_binary(path), 0
    with atomic_file(path, overwrite=overwrite) as stream:
        stream.write(f"{n_words} {dim}\n".encode())
        for word, vector in rows:
            if not word or " " in word or "\n" in word:
                raise InputError(
                    f"'{shown(word, 60)}' cannot be stored in a word2vec file, which ends words "
                    "at spaces; leave it out or join it with _"
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


def _text_rows(path: Path) -> Iterator[_Row]:
    """Read word2vec or GloVe text.

    The first line tells how many values there are on each line. A word is what precedes them:
    GloVe 840B has words with spaces.
    """
    dim = number = 0
    for number, line in numbered_lines(path):
        line = line.rstrip(" \t")
        if number == 1:
            counts = _COUNTS.fullmatch(line)
            dim = int(counts[1]) if counts else line.count(" ")
            if dim < 1:
                break
            if counts:
                continue
        word, *values = line.rsplit(" ", dim)
        if len(values) < dim or (" " in word and _is_number(word.rpartition(" ")[2])):
            problem = f"not {dim} numbers after a word; give every word as many"
            raise InputError(problem, file=str(path), line=number)
        yield number, word, values
    if dim < 1:
        raise InputError("there is no vector; is this word2vec text?", file=str(path), line=number)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _binary_rows(path: Path) -> Iterator[_Row]:
    with open_checked(path, what="word vectors") as stream:
        counts = stream.readline(_MAX_BYTES).split()
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
    start = 0
    for row in range(n_words):
        space = data.find(b" ", start, start + _MAX_BYTES)
        end = space + 1 + 4 * dim
        if space < 0 or end > len(data):
            raise InputError(f"it ends in word {row + 1}; copy it again", file=str(path))
        # Some programs end a row with a line end, some do not.
        word = data[start:space].decode("utf-8", "replace").lstrip("\n")
        yield None, word, np.frombuffer(data, "<f4", dim, space + 1)
        start = end


def _npy_rows(path: Path) -> Iterator[_Row]:
    stems = [path.with_suffix(""), path.with_suffix("").with_suffix("")]
    names = [stem.parent / (stem.name + end) for stem in stems for end in (".words", ".words.txt")]
    words_path = next((name for name in names if name.exists()), None)
    if words_path is None:
        raise InputError(
            f"no words beside it; put them, one per line, into '{names[1].name}'", file=str(path)
        )
    words = [line for _, line in numbered_lines(words_path)]
    try:
        # Mapped, so that rows that are not wanted take no memory; and never a pickle.
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FormatError(f"'{path}' is not a matrix: {error}; write it with numpy.save") from None
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or len(matrix) != len(words):
        raise InputError(
            f"{len(words)} words but a matrix of shape {getattr(matrix, 'shape', None)}; give one "
            "row for each",
            file=str(words_path),
        )
    rows = np.asarray(matrix)  # still mapped, but without the cost of `memmap` for each row
    yield from ((None, word, rows[row]) for row, word in enumerate(words))

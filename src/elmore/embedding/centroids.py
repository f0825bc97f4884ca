"""One vector per word, from its contexts in a text; and groups of vectors.

This does not go through an index of uses (`elmore.senses`), because it means something else: each
use counts, words keep their case, and sums are exact while the text streams by. An index samples
frequent words, joins *Bank* and *bank*, rounds to int8, and would be written only to be averaged.
For vectors of the senses of a word, use `elmore senses INDEX WORD -o senses.vec`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.embedding.results import unit
from elmore.embedding.stream import embed_stream, finish_of
from elmore.options import LayerChoice, Output
from elmore.text.tokenizer import Sentence

if TYPE_CHECKING:
    from elmore.elmo import Elmo

Array = NDArray[np.float32]
_ROUNDS = 20


class Centroid(NamedTuple):
    """A mean of uses.

    Attributes:
        word: the word.
        vector: (dim,).
        n_uses: how many uses.
    """

    word: str
    vector: Array
    n_uses: int


def word_centroids(
    elmo: Elmo,
    sentences: Iterable[Sentence],
    words: Sequence[str],
    *,
    layers: LayerChoice = "mean",
) -> list[Centroid]:
    """Average the vectors of every use of each word.

    Args:
        elmo: the model.
        sentences: where the words are used; read once, in bounded memory.
        words: which words; others are read, but not counted.
        layers: as in `Elmo.embed`.

    Returns:
        the words that occur, the most frequent first.
    """
    words = list(dict.fromkeys(words))
    rows = {word: row for row, word in enumerate(words)}
    sums = np.zeros((len(rows), elmo.dim))  # float64: of thousands of terms
    counts = np.zeros(len(rows), np.int64)
    for known, vectors in _uses(elmo, sentences, rows, layers):
        np.add.at(sums, known, vectors)
        np.add.at(counts, known, 1)
    order = np.argsort(-counts, kind="stable")
    return [
        Centroid(words[row], np.asarray(sums[row] / counts[row], np.float32), int(counts[row]))
        for row in order
        if counts[row]
    ]


def _uses(
    elmo: Elmo, sentences: Iterable[Sentence], rows: dict[str, int], layers: LayerChoice
) -> Iterator[tuple[NDArray[np.int64], Array]]:
    """Yield for each sentence the rows of its known words, (n,), and their vectors, (n, dim)."""
    # A sentence without a known word would be computed for nothing.
    useful = (s for s in sentences if any(token in rows for token in s.tokens))
    finish = finish_of(elmo.engine, Output(layers=layers))
    for sentence, vectors in embed_stream(elmo.engine, useful, finish):
        places = [k for k, token in enumerate(sentence.tokens) if token in rows]
        known = [rows[sentence.tokens[k]] for k in places]
        yield np.asarray(known, np.int64), vectors[places]


def first_centres(points: Array, k: int, draws: np.random.Generator) -> Array:
    """Choose first centres far apart, as k-means++ does; fewer if the points are the same.

    Args:
        points: unit vectors, (n, dim).
        k: how many centres.
        draws: what chooses.

    Returns:
        points, (up to k, dim).
    """
    centres = points[[int(draws.integers(len(points)))]]
    while len(centres) < k:
        far = np.clip(1 - (points @ centres.T).max(axis=1).astype(np.float64), 0, None)
        if far.sum() <= 1e-6 * len(points):
            break
        centres = np.vstack([centres, points[int(draws.choice(len(points), p=far / far.sum()))]])
    return centres


def k_means(points: Array, centres: Array) -> NDArray[np.int64]:
    """Group unit vectors by the angle between them, from given first centres.

    Args:
        points: (n, dim).
        centres: (k, dim), unit vectors too.

    Returns:
        the group of each point, (n,); a group may stay empty.
    """
    centres = centres.copy()
    groups = np.argmax(points @ centres.T, axis=1)
    for _ in range(_ROUNDS):
        for group in range(len(centres)):
            members = points[groups == group]
            if len(members):
                centres[group] = unit(members.mean(axis=0)[None])[0]
        again = np.argmax(points @ centres.T, axis=1)
        if np.array_equal(again, groups):
            break
        groups = again
    return np.asarray(groups, np.int64)

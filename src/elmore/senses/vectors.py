"""Sense vectors: a use of a word, described by the words that could stand in its place.

The language models on both sides of a place say how likely every word is there. A word's weight is
how much likelier it is here than in general: log p(w | context) - log p(w), never below 0 (the
positive pointwise mutual information of word and place). The likeliest words with their weights
are a sparse vector that people can read. Uses in the same sense share substitutes, so the cosine
of these vectors separates senses better than the cosine of the layers does.

p(w | context) joins both directions as `elmore.language_model.substitutes` does. p(w) comes from
the rank of the word in the vocabulary by Zipf's law. An average of log p(w | context) over sample
text was tried instead: it gave the same accuracy on SemCor and would have to be stored with every
model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from elmore.embedding.elmo import Elmo
from elmore.embedding.pipe import BATCH_TOKENS, windows
from elmore.errors import ConfigError, InputError
from elmore.kernels.softmax import Likeliest
from elmore.language_model.predictions import LanguageModel
from elmore.text.batching import plan_batches
from elmore.text.sentence import Sentence

__all__ = ["N_WORDS", "Place", "SenseSpace", "SenseVectors", "marked_place", "sense_vectors"]

Array = NDArray[np.float32]
# A sentence, and the position of a token in it.
Place = tuple[Sentence, int]

# Words kept for each place. On SemCor (nearest use, leave one out) 50, 200 and 1,000 words gave
# 64.4, 64.9 and 64.4 per cent; the layers gave at most 62.5.
N_WORDS = 200
_OPEN, _CLOSE = "[", "]"


@dataclass(frozen=True, slots=True, eq=False)
class SenseVectors:
    """The sense vectors of n places; those of a sentence have one row per token.

    Attributes:
        space: the model that they come from.
        ids: words, the likeliest first, (n, k).
        weights: how much likelier each is here than in general, 0 or more, (n, k).
    """

    space: SenseSpace
    ids: NDArray[np.int32]
    weights: Array

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: slice | Sequence[int] | NDArray[np.int64]) -> SenseVectors:
        return SenseVectors(self.space, self.ids[rows], self.weights[rows])

    def __repr__(self) -> str:
        return f"SenseVectors({len(self)} places, {self.ids.shape[1]} words each)"

    def words(self, row: int, n: int = 10) -> list[tuple[str, float]]:
        """The n words with the largest weights of one place, with their weights."""
        best = np.argsort(-self.weights[row], kind="stable")[:n]
        names = self.space.words
        return [(names[self.ids[row, k]], float(self.weights[row, k])) for k in best]

    def shared(self, row: int, other: int, n: int = 10) -> list[tuple[str, float]]:
        """Why two places are similar: words of both, with what each adds to the cosine."""
        ids, mine, theirs = np.intersect1d(self.ids[row], self.ids[other], return_indices=True)
        norms = self.norms[[row, other]].prod()
        parts = self.weights[row, mine] * self.weights[other, theirs] / (norms or 1)
        best = np.argsort(-parts, kind="stable")[:n]
        return [(self.space.words[ids[k]], float(parts[k])) for k in best if parts[k] > 0]

    @property
    def norms(self) -> Array:
        """The length of each vector, (n,)."""
        return np.asarray(np.linalg.norm(self.weights, axis=1))

    def similarity(self, other: SenseVectors | None = None) -> Array:
        """The cosine of each place with each place of `other` (or of these), (n, m)."""
        other = self if other is None else other
        # Only words that occur matter: the matrix is much narrower than the vocabulary.
        used, columns = np.unique(other.ids, return_inverse=True)
        table = np.zeros((len(other), len(used) + 1), np.float32)
        np.put_along_axis(table, columns.reshape(other.ids.shape), _unit(other.weights), axis=1)
        result = np.empty((len(self), len(other)), np.float32)
        at = np.searchsorted(used, self.ids).clip(max=max(len(used) - 1, 0))
        at = np.where(used[at] == self.ids, at, len(used)) if len(used) else at
        for row, weights in enumerate(_unit(self.weights)):
            result[row] = table[:, at[row]] @ weights
        return result

    def dense(self) -> Array:
        """One short vector per place: the weighted sum of its words' softmax rows, (n, dim)."""
        rows = self.space.rows
        result = np.empty((len(self), rows.shape[1]), np.float32)
        for row, (ids, weights) in enumerate(zip(self.ids, self.weights, strict=True)):
            result[row] = weights @ rows[ids]
        return result


class SenseSpace:
    """What all sense vectors of one model share: its words, and how likely each is in general.

    Args:
        elmo: a model that has a softmax.
        k: words kept for each place.

    Raises:
        ConfigError: the model has no softmax.
    """

    def __init__(self, elmo: Elmo, k: int = N_WORDS) -> None:
        if k < 1:
            raise ConfigError(f"k={k} words cannot describe a place; use 1 or more")
        self._model = model = LanguageModel(elmo)
        self.elmo, self.k = elmo, k
        self.words = model.vocabulary.words
        self._rows: Array | None = None
        rank = np.log(np.arange(1, len(self.words) + 1))
        self._log_prior = (-rank - np.log(np.exp(-rank).sum())).astype(np.float32)
        # Both directions count a frequent word, so its frequency is divided out once.
        self._join = (rank if model.bidirectional else 0 * rank).astype(np.float32)
        self._join[model.special] = -np.inf

    @property
    def rows(self) -> Array:
        """The softmax row of each word, centred and of length 1, (n_words, dim)."""
        if self._rows is None:
            rows = np.asarray(self._model.softmax.weight[: len(self.words)], np.float32)
            self._rows = _unit(rows - rows.mean(axis=0))
        return self._rows

    def vectors(
        self, places: Sequence[Place], *, batch_tokens: int = BATCH_TOKENS
    ) -> SenseVectors:
        """The sense vectors of chosen places; places of one sentence share its computation."""
        for sentence, position in places:
            if not 0 <= position < len(sentence):
                raise ConfigError(
                    f"position={position}, but the sentence has {len(sentence)} tokens; count "
                    "from 0"
                )
        rows: dict[Sentence, list[int]] = {}
        for row, (sentence, _) in enumerate(places):
            rows.setdefault(sentence, []).append(row)
        asked = [(sentence, [places[row][1] for row in mine]) for sentence, mine in rows.items()]
        order = np.concatenate([*map(np.asarray, rows.values()), np.zeros(0)]).astype(np.int64)
        found = list(self.pipe(asked, batch_tokens=batch_tokens))
        ids = np.zeros((len(places), self.k), np.int32)
        weights = np.zeros((len(places), self.k), np.float32)
        if found:
            width = found[0].ids.shape[1]
            ids, weights = ids[:, :width], weights[:, :width]
            ids[order] = np.concatenate([part.ids for part in found])
            weights[order] = np.concatenate([part.weights for part in found])
        return SenseVectors(self, ids, weights)

    def pipe(
        self,
        places: Iterable[tuple[Sentence, Sequence[int]]],
        *,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Iterator[SenseVectors]:
        """The sense vectors of a stream of sentences: lazy, in order, in bounded memory.

        Args:
            places: sentences, and the positions of interest in each.
            batch_tokens: token budget of a batch.
        """
        positions: list[Sequence[int]] = []

        def sentences() -> Iterator[Sentence]:
            for sentence, mine in places:
                positions.append(mine)
                yield sentence

        for window in windows(sentences()):
            mine = [np.asarray(positions.pop(0), np.int64) for _ in window]
            yield from self._window(window, mine, batch_tokens)

    def _window(
        self, window: list[Sentence], positions: list[NDArray[np.int64]], batch_tokens: int
    ) -> Iterator[SenseVectors]:
        model, dim = self._model, self._model.softmax.weight.shape[1]
        ends = np.cumsum([len(mine) for mine in positions])
        hidden = np.zeros((1 + model.bidirectional, ends[-1], dim), np.float32)
        busy = [k for k, mine in enumerate(positions) if len(mine)]
        for rows in plan_batches([len(window[k]) for k in busy], batch_tokens=batch_tokens):
            members = [busy[row] for row in rows]
            batch = model.engine.indexer.batch([window[k].tokens for k in members])
            layers, _ = model.engine.run(batch)
            for row, k in enumerate(members):
                # Token t is at t + 1, after the marker: what is before it was read at t, what is
                # after it at t + 2.
                mine, at = positions[k], slice(ends[k] - len(positions[k]), ends[k])
                hidden[0, at] = model.half(layers[-1, row, mine], 0)
                if model.bidirectional:
                    hidden[1, at] = model.half(layers[-1, row, mine + 2], 1)
        found = self._substitutes(hidden)
        for k, mine in enumerate(positions):
            at = slice(ends[k] - len(mine), ends[k])
            yield SenseVectors(self, found.ids[at], found.weights[at])

    def _substitutes(self, hidden: Array) -> SenseVectors:
        """Rank the words of places, from the top-layer vectors (directions, n, dim)."""
        engine = self._model.engine
        table = engine.log_softmax()
        k = min(self.k, len(self.words) - len(self._model.special))
        if not hidden.shape[1]:
            return SenseVectors(self, np.zeros((0, k), np.int32), np.zeros((0, k), np.float32))
        parts = np.array_split(hidden, min(engine.workers.count, hidden.shape[1]), axis=1)
        with engine.alone():
            done = engine.workers.share(
                [partial(table.likeliest, list(part), self._join, k) for part in parts]
            )
        found = Likeliest(*map(np.concatenate, zip(*done, strict=True)))
        weights = found.values - found.total[:, None] - self._log_prior[found.ids]
        if not np.isfinite(weights).all():
            raise InputError("the softmax gives values that are not finite; the model is damaged")
        return SenseVectors(self, found.ids, np.maximum(weights, 0))


def sense_vectors(elmo: Elmo, places: Sequence[Place], *, k: int = N_WORDS) -> SenseVectors:
    """The sense vectors of chosen places.

    Args:
        elmo: a model that has a softmax.
        places: sentences, and the position of a token in each.
        k: words kept for each place.
    """
    return SenseSpace(elmo, k).vectors(places)


def marked_place(elmo: Elmo, text: str) -> Place:
    """Read a sentence in which one word is in brackets: "She sat on the [bank] of the river".

    Raises:
        InputError: not exactly one word is marked.
    """
    start, end = text.find(_OPEN), text.find(_CLOSE)
    marks = text.count(_OPEN), text.count(_CLOSE)
    if marks != (1, 1) or end < start:
        raise InputError(f"mark one word of '{text}' with brackets: She sat on the [bank]")
    plain = text[:start] + text[start + 1 : end] + text[end + 1 :]
    sentence = elmo.tokenize(plain)
    inside = [
        k
        for k, (first, last) in enumerate(sentence.spans or ())
        if first < end - 1 and last > start
    ]
    if len(inside) != 1:
        marked = text[start + 1 : end]
        raise InputError(f"'{marked}' in brackets is {len(inside)} tokens; mark one word")
    return sentence, inside[0]


def _unit(rows: Array) -> Array:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms == 0, 1, norms), np.float32)

"""Sense vectors: a use of a word, described by the words that could replace it.

The forward and backward models predict how likely every word is at a position. A word's weight is
how much likelier it is here than in general: log p(w | context) - log p(w), never below 0 (the
positive pointwise mutual information of word and position), plus how much it is like the word that
is there. The likeliest words with their weights are a sparse vector that people can read. Uses in
the same sense share substitutes, so the cosine of these vectors separates senses better than the
cosine of the layers does. The states that the substitutes come from add a little to that.

p(w | context) joins both directions as `elmore.language_model.substitutes` does, and with half the
weight what could be joined to the word that is there ("the bank and __", "__ and the bank"): words
of the same kind. Where vectors are compared, the forms of a word (Banks, banks, bank) count as one
word, if the model knows the base form.

p(w) comes from the rank of the word in the vocabulary by Zipf's law. An average of log
p(w | context) over sample text was tried instead: it gave the same accuracy on SemCor and would
have to be stored with every model.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elmore.compute.matrix import dequantize
from elmore.embedding.results import layer_weights, unit
from elmore.embedding.search import largest
from elmore.embedding.stream import windows
from elmore.errors import ConfigError, InputError
from elmore.language_model.likely_words import PositionPredictor, check_positions
from elmore.language_model.predictions import read_sentence
from elmore.language_model.word_uses import find_uses
from elmore.options import BATCH_TOKENS, LayerChoice
from elmore.text.tokenizer import Sentence

if TYPE_CHECKING:
    from elmore.elmo import Elmo

__all__ = [
    "N_WORDS",
    "LayerSpace",
    "Place",
    "SenseSpace",
    "SenseVectors",
    "SubstituteSpace",
    "base_forms",
    "make_space",
    "marked_place",
    "sense_vectors",
    "similar_words",
    "unit",
]

Array = NDArray[np.float32]
# A sentence, and the position of a token in it.
Place = tuple[Sentence, int]
# A sentence, and positions in it; first and last token where a position has several.
Positions = tuple[Sentence, Sequence[int] | Sequence[tuple[int, int]]]

# Words kept for each position. On SemCor (seven nearest uses, leave one out) 64, 100 and 200 words
# gave 68.7, 68.5 and 68.6 per cent; their dense forms gave 67.1 each.
N_WORDS = 100
# Positions whose words' softmax rows exist at once: 1.6 MB for 100 words of 128 numbers.
_DENSE_ROWS = 32
# Positions whose weights of all words that occur exist at once.
_TABLE_ROWS = 256
_OPEN, _CLOSE = "[", "]"
# Endings of English with what may stand in their place; a doubled letter before them may go.
_ENDINGS = (
    *(("ies", ("y",)), ("s", ("",)), ("es", ("",)), ("ied", ("y",))),
    *(("ed", ("e", "")), ("ing", ("e", ""))),
)
# Chosen on the trial set of lexical substitution: a frequent word is likely everywhere, so half of
# its frequency is divided out, and the likeness of both words (cosine of softmax rows) is added.
_FREQUENCY, _WORD = 0.5, 8.0
# How much the likeness to the word itself adds to the weight of a substitute. With 0, 0.5 and 3,
# 69, 70 and 70 of 72 homonyms are nearest to a use in the same sense. The correlation with judged
# pairs of uses (DWUG) grows from .407 to .413, but small senses disappear among the others: groups
# score 41.1, 41.1 and 40.3 (AVG of SemEval-2010).
_LIKENESS = 0.5
# How much of the similarity of two uses is the cosine of their contexts. With 0, 0.1, 0.2, 0.3 and
# 0.4, 69, 70, 71, 71 and 70 homonyms are nearest to one in the same sense, and the correlation with
# judged pairs of uses is .410, .415, .414, .410 and .402.
_CONTEXT = 0.2


class Tokenizes(Protocol):
    """What splits a sentence into tokens: a model or an index."""

    def tokenize(self, text: str) -> Sentence:
        """The tokens of a sentence."""


class Space(Protocol):
    """The words that describe positions: those of a model, or those that an index stores."""

    @property
    def words(self) -> Sequence[str]:
        """All words, by id."""

    @property
    def rows(self) -> Array:
        """The softmax row of each word, centred and of length 1, (n_words, dim)."""

    @property
    def bases(self) -> NDArray[np.int32]:
        """The word that each word counts as; see `base_forms`, (n_words,)."""


@dataclass(frozen=True, slots=True, eq=False)
class SenseVectors:
    """The sense vectors of n positions; those of a sentence have one row per token.

    Attributes:
        space: the model or the index that they come from.
        ids: words, the likeliest first, or in the order of the ids in an index, (n, k).
        weights: how much likelier each is here than in general, and how much it is like the word
            that is there, 0 or more, (n, k).
        tokens: of the sentence, if there is one row for each of them.
        layers: a mix of the layers of each position, if the space was asked for one, (n, dim). For
            a model without a softmax this is all there is: k is 0.
        context: the top layer of each direction just before it reads the position, one next to the
            other, (n, size). Substitutes follow from it, but it says more than the likeliest do.
    """

    space: Space
    ids: NDArray[np.int32]
    weights: Array
    tokens: tuple[str, ...] | None = None
    layers: Array | None = None
    context: Array | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: slice | Sequence[int] | NDArray[np.int64]) -> SenseVectors:
        layers, context = (None if a is None else a[rows] for a in (self.layers, self.context))
        ids, weights = self.ids[rows], self.weights[rows]
        return SenseVectors(self.space, ids, weights, layers=layers, context=context)

    def __repr__(self) -> str:
        return f"SenseVectors({len(self)} positions, {self.ids.shape[1]} words each)"

    def words(self, row: int, n: int = 10) -> list[tuple[str, float]]:
        """The n words with the largest weights; words without weight say nothing."""
        weights, names = self.weights[row], self.space.words
        best = np.argsort(-weights, kind="stable")[:n]
        return [(names[self.ids[row, k]], float(weights[k])) for k in best if weights[k] > 0]

    def folded(self, *, roots: bool = True) -> SenseVectors:
        """What is compared: the roots of the weights, all forms of a word joined, of length 1.

        Without the roots a few words with large weights decide: of homonyms 93.1 per cent instead
        of 97.2 are nearest to a use in the same sense. To divide uses, the weights themselves are
        better. Joined forms leave entries without weight.
        """
        ids = self.space.bases[self.ids] if self.ids.shape[1] else self.ids
        order = np.argsort(ids, axis=1, kind="stable")
        ids = np.take_along_axis(ids, order, axis=1)
        weights = np.take_along_axis(self.weights, order, axis=1)
        weights = np.sqrt(weights) if roots else weights
        first = np.ones(ids.shape, bool)
        first[:, 1:] = ids[:, 1:] != ids[:, :-1]
        joined = np.zeros_like(weights)
        joined[first] = np.add.reduceat(weights.ravel(), np.flatnonzero(first)) if ids.size else 0
        return dataclasses.replace(self, ids=ids, weights=unit(joined), tokens=None)

    def table(self, words: NDArray[np.int32]) -> Array:
        """The weights of chosen words, sorted by id, (n, n_words); see `folded` for their forms."""
        result = np.zeros((len(self), len(words) + 1), np.float32)
        at = np.searchsorted(words, self.ids).clip(max=max(len(words) - 1, 0))
        at = np.where(words[at] == self.ids, at, len(words)) if len(words) else at
        rows, columns = np.nonzero(self.weights)
        result[rows, at[rows, columns]] = self.weights[rows, columns]
        return result[:, :-1]

    def shared(self, row: int, other: int, n: int = 10) -> list[tuple[str, float]]:
        """Why two positions are similar: words of both, with what each adds to the similarity."""
        pair = self[[row, other]].folded()
        words = np.unique(pair.ids)
        parts = pair.table(words).prod(axis=0) * (1 if self.context is None else 1 - _CONTEXT)
        best = np.argsort(-parts, kind="stable")[:n]
        return [(self.space.words[words[k]], float(parts[k])) for k in best if parts[k] > 0]

    def similarity(self, other: SenseVectors | None = None) -> Array:
        """How similar each position is to each one of `other` (or of these), up to 1, (n, m).

        It is the mean of two cosines: that of the substitutes, and with less weight that of the
        contexts.
        """
        other = self if other is None else other
        if not self.ids.shape[1]:
            return np.asarray(unit(self.dense()) @ unit(other.dense()).T)
        mine, theirs = self.folded(), other.folded()
        # Only words that occur matter: the matrix is much narrower than the vocabulary.
        words = np.unique(theirs.ids)
        columns = theirs.table(words).T
        result = np.empty((len(mine), len(theirs)), np.float32)
        for start in range(0, len(mine), _TABLE_ROWS):
            some = slice(start, start + _TABLE_ROWS)
            result[some] = mine[some].table(words) @ columns
        if self.context is not None and other.context is not None:
            result *= 1 - _CONTEXT
            result += np.float32(_CONTEXT) * (unit(self.context) @ unit(other.context).T)
        return result

    def dense(self) -> Array:
        """One short vector per position: the weighted sum of its words' softmax rows, (n, dim)."""
        if self.layers is not None and not self.ids.shape[1]:
            return self.layers
        rows = self.space.rows
        result = np.empty((len(self), rows.shape[1]), np.float32)
        for start in range(0, len(self), _DENSE_ROWS):
            some = slice(start, start + _DENSE_ROWS)
            result[some] = (self.weights[some, None] @ rows[self.ids[some]])[:, 0]
        return result


def join_vectors(parts: Sequence[SenseVectors]) -> SenseVectors:
    """The positions of all parts, of which there is one or more, in the space of the first."""
    names = ("ids", "weights", "layers", "context")
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in names
        if getattr(parts[0], name) is not None
    }
    return dataclasses.replace(parts[0], tokens=None, **arrays)


class SenseSpace(ABC):
    """Gives the vectors of positions in sentences: see `SubstituteSpace` and `LayerSpace`.

    Attributes:
        elmo: the model.
        k: words kept for each position; 0 if there are only layers.
        words: all words, by id.
    """

    elmo: Elmo
    k: int = 0
    words: Sequence[str] = ()

    @cached_property
    def bases(self) -> NDArray[np.int32]:
        """The word that each word counts as; see `base_forms`, (n_words,)."""
        return base_forms(self.words)

    @property
    @abstractmethod
    def dim(self) -> int:
        """Size of a dense vector."""

    @property
    @abstractmethod
    def rows(self) -> Array:
        """The softmax row of each word, centred and of length 1, (n_words, dim)."""

    @abstractmethod
    def window(self, places: Sequence[Positions], batch_tokens: int) -> SenseVectors:
        """As `pipe`, but all at once: those of the first sentence come first."""

    def pipe(
        self, places: Iterable[Positions], *, batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[SenseVectors]:
        """The vectors of a stream of sentences: lazy, in order, in bounded memory.

        Args:
            places: sentences, and the positions of interest in each; first and last token where
                a position has several.
            batch_tokens: token budget of a batch.
        """
        for window in windows(places, lambda item: len(item[0])):
            found = self.window(window, batch_tokens)
            stop = 0
            for _, chosen in window:
                start, stop = stop, stop + len(chosen)
                yield found[start:stop]

    def vectors(self, places: Sequence[Place], *, batch_tokens: int = BATCH_TOKENS) -> SenseVectors:
        """The vectors of chosen positions; those of one sentence share its computation."""
        check_positions(places)
        rows: dict[Sentence, list[int]] = {}
        for row, (sentence, _) in enumerate(places):
            rows.setdefault(sentence, []).append(row)
        asked = [(sentence, [places[row][1] for row in mine]) for sentence, mine in rows.items()]
        parts = [self.window([], batch_tokens), *self.pipe(asked, batch_tokens=batch_tokens)]
        order = np.argsort([row for mine in rows.values() for row in mine], kind="stable")
        return join_vectors(parts)[order]


class SubstituteSpace(SenseSpace):
    """Describes a position by the words that could replace the one that is there.

    Args:
        elmo: a model that has a softmax.
        k: words kept for each position.
        candidates: judge only so many of the most frequent words, which takes less time; all by
            default.
        layers: also give this mix of the layers.

    Raises:
        ConfigError: the model has no softmax.
    """

    def __init__(
        self,
        elmo: Elmo,
        k: int = N_WORDS,
        *,
        candidates: int | None = None,
        layers: LayerChoice | None = None,
    ) -> None:
        for name, value in (("k", k), ("candidates", candidates)):
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} words cannot describe a position; use 1 or more")
        self.elmo = elmo
        self._rows: Array | None = None
        self._mix = None if layers is None else layer_weights(layers, elmo.n_layers)
        self._predictor = PositionPredictor(elmo, candidates, pattern=True)
        vocabulary = self._predictor.model.vocabulary
        self.words, self.find = vocabulary.words, vocabulary.find
        self.special = self._predictor.model.special
        self.softmax = self._predictor.model.softmax
        self.k = min(k, len(self._predictor.prior) - len(self._predictor.special))
        if self.k < 1:
            raise ConfigError(f"candidates={candidates} leaves no word but markers; use more")
        rank = np.log(np.arange(1, len(self.words) + 1))
        # log p(w), (n_words,)
        self.log_prior = (-rank - np.log(np.exp(-rank).sum())).astype(np.float32)

    @property
    def dim(self) -> int:
        """Size of a dense vector."""
        return int(self.softmax.weight.shape[1])

    @property
    def rows(self) -> Array:
        """The softmax row of each word, centred and of length 1, (n_words, dim)."""
        if self._rows is None:
            rows = dequantize(self.softmax.stored.rows(slice(len(self.words))))
            self._rows = unit(rows - rows.mean(axis=0))
        return self._rows

    def window(self, places: Sequence[Positions], batch_tokens: int) -> SenseVectors:
        """As `pipe`, but all at once: those of the first sentence come first."""
        sentences, mine = _split(places)
        n = sum(map(len, mine))
        layers = None if self._mix is None else np.zeros((n, self.elmo.dim), np.float32)

        def keep(here: NDArray[np.int64], values: Array) -> None:
            if layers is not None and self._mix is not None:
                layers[here] = np.einsum("l,lnd->nd", self._mix, values)

        hidden = self._predictor.hidden(
            sentences, mine, batch_tokens, None if layers is None else keep
        )
        n_directions = 1 + self._predictor.model.bidirectional
        context = np.concatenate(list(hidden[:n_directions]), axis=1)
        if not n:  # a window of empty sentences
            nothing = np.zeros((0, self.k), np.int32)
            weights = nothing.astype(np.float32)
            return SenseVectors(self, nothing, weights, layers=layers, context=context)
        # int8 has changed no figure that was measured: on SemCor 68.6 per cent with and without.
        found = self._predictor.likeliest(hidden, self.k, rounded=True)
        weights = found.values - found.total[:, None] - self.log_prior[found.ids]
        weights = np.maximum(weights, 0)
        own = [
            self._word(sentence.tokens[first]) if first == last else None
            for sentence, some in zip(sentences, mine, strict=True)
            for first, last in np.broadcast_to(some.T, (2, len(some))).T.tolist()
        ]
        known = np.flatnonzero([word is not None for word in own])
        for rows in np.array_split(known, len(known) // _DENSE_ROWS + 1):
            words = np.array([own[row] for row in rows], np.int64)
            likeness = self.rows[found.ids[rows]] @ self.rows[words][:, :, None]
            weights[rows] += np.float32(_LIKENESS) * likeness[:, :, 0]
        weights = np.maximum(weights, 0)
        return SenseVectors(self, found.ids, weights, layers=layers, context=context)

    def _word(self, token: str) -> int | None:
        """The id of a token, or else that of its lower case."""
        found = self.find(token)
        return self.find(token.lower()) if found is None else found

    def values(self, place: Place, ids: NDArray[np.int64]) -> Array:
        """How likely chosen words are at a position: log p(w | context) up to a constant, (n,)."""
        sentence, position = place
        hidden = self._predictor.hidden([sentence], [np.array([position])], BATCH_TOKENS)
        return self._predictor.values(hidden[:, 0], ids)

    def likeness(self, word: int | None, ids: NDArray[np.int64]) -> Array:
        """The cosine of words with one word, without any sentence, (n,); zeros for None."""
        if word is None:
            return np.zeros(len(ids), np.float32)
        return np.asarray(self.rows[ids] @ self.rows[word])

    def substitution(self, place: Place, word: int | None, ids: NDArray[np.int64]) -> Array:
        """How well words could replace a word at a position, (n,).

        The log probability of a word is averaged with that of all its forms together, because a
        form that does not fit the grammar may still name what fits. The likeness is added.
        """
        bases = self.bases[ids]
        forms = np.flatnonzero(np.isin(self.bases, bases))
        fit = self.values(place, forms) - _FREQUENCY * self.log_prior[forms]
        together = np.full(len(self.words), -np.inf, np.float32)
        np.logaddexp.at(together, self.bases[forms], fit)
        mean = (fit[np.searchsorted(forms, ids)] + together[bases]) / 2
        return np.asarray(mean + _WORD * self.likeness(word, ids))


class LayerSpace(SenseSpace):
    """Describes a position by a mix of its layers: for a model without a softmax.

    Args:
        elmo: the model.
        layers: the mix.
    """

    def __init__(self, elmo: Elmo, layers: LayerChoice = "top") -> None:
        layer_weights(layers, elmo.n_layers)  # refuses layers that are not there
        self.elmo, self._layers = elmo, layers

    @property
    def dim(self) -> int:
        """Size of a dense vector."""
        return self.elmo.dim

    @property
    def rows(self) -> Array:
        """None: there are no words."""
        return np.zeros((0, self.dim), np.float32)

    def window(self, places: Sequence[Positions], batch_tokens: int) -> SenseVectors:
        """As `pipe`, but all at once; of positions with several tokens the first counts."""
        sentences, mine = _split(places)
        layers = [np.zeros((0, self.dim), np.float32)]
        vectors = self.elmo.pipe(
            sentences, layers=self._layers, batch_tokens=batch_tokens, progress=False
        )
        for positions, values in zip(mine, vectors, strict=True):
            if len(positions):
                layers.append(values[positions[:, 0] if positions.ndim == 2 else positions])
        joined = np.concatenate(layers)
        nothing = np.zeros((len(joined), 0), np.int32)
        return SenseVectors(self, nothing, nothing.astype(np.float32), layers=joined)


def _split(places: Sequence[Positions]) -> tuple[list[Sentence], list[NDArray[np.int64]]]:
    """The sentences, and the positions in each as an array."""
    return [s for s, _ in places], [np.asarray(mine, np.int64) for _, mine in places]


def base_forms(words: Sequence[str]) -> NDArray[np.int32]:
    """The word that each word counts as where uses are compared, (n_words,).

    Capitals do not matter. A regular form of English counts as its base if that is a word as well:
    "banks" as "bank", but not "Paris" as "Pari".

    Args:
        words: by falling frequency.
    """
    lowest: dict[str, int] = {}
    for number in sorted(range(len(words)), key=lambda k: words[k] != words[k].lower()):
        lowest.setdefault(words[number].lower(), number)
    bases = dict(lowest)
    for word in lowest:
        base = next((one for one in _stems(word) if one in lowest), None)
        if base is not None:
            bases[word] = lowest[base]
    result = np.array([bases[word.lower()] for word in words], np.int32)
    return np.asarray(result[result] if len(result) else result, np.int32)


def _stems(word: str) -> Iterator[str]:
    """What a word could be a regular form of."""
    for ending, others in _ENDINGS:
        stem = word.removesuffix(ending)
        # Short words and "less" are no such forms.
        if len(stem) < 3 or stem == word or (ending == "s" and stem[-1] == "s"):
            continue
        yield from (stem + other for other in others)
        if ending in ("ed", "ing") and stem[-1] == stem[-2]:
            yield stem[:-1]


def make_space(
    elmo: Elmo,
    k: int = N_WORDS,
    *,
    candidates: int | None = None,
    layers: LayerChoice | None = None,
) -> SenseSpace:
    """The space for a model: layers alone if it has no softmax or no word is asked for (k=0)."""
    if layers is not None and (elmo.checkpoint.softmax is None or k == 0):
        return LayerSpace(elmo, layers)
    return SubstituteSpace(elmo, k, candidates=candidates, layers=layers)


def sense_vectors(elmo: Elmo, places: Sequence[Place], *, k: int = N_WORDS) -> SenseVectors:
    """The sense vectors of chosen positions.

    Args:
        elmo: a model that has a softmax.
        places: sentences, and the position of a token in each.
        k: words kept for each position.
    """
    return SubstituteSpace(elmo, k).vectors(places)


def similar_words(
    elmo: Elmo, word: str, context: str | Sequence[str] | None, k: int
) -> list[tuple[str, float]]:
    """The words nearest in meaning to a word; see `Elmo.most_similar`."""
    if k < 1:
        raise ConfigError(f"k={k} asks for no word; use 1 or more")
    space = elmo.sense_space
    ids = np.arange(len(space.words))
    forms = (word, word.lower(), word.capitalize(), word.upper())
    known = [found for form in forms if (found := space.find(form)) is not None]
    mine = known[0] if known else None
    if context is None:
        if mine is None:
            raise ConfigError(f"{word!r} is not in the vocabulary; give a sentence as context=")
        scores = space.likeness(mine, ids).copy()
    else:
        sentence = read_sentence(elmo, context)
        uses = find_uses([sentence.tokens], word)
        if not uses:
            raise ConfigError(f"the context has no {word!r}; use a sentence with that word")
        scores = space.substitution((sentence, uses[0].position), mine, ids)
        scores = np.exp(scores - scores.max())
        scores /= scores.sum()
    hidden = {*known, *space.special}  # the word itself, and markers
    scores[list(hidden)] = -np.inf
    best = largest(scores, min(k, len(ids) - len(hidden)))
    return [(space.words[i], float(scores[i])) for i in best]


def marked_place(by: Tokenizes, text: str) -> Place:
    """Read a sentence in which one word is in brackets: "She sat on the [bank] of the river".

    Args:
        by: the model or the index that splits it into tokens.
        text: the sentence.

    Raises:
        InputError: not exactly one word is marked.
    """
    start, end = text.find(_OPEN), text.find(_CLOSE)
    marks = text.count(_OPEN), text.count(_CLOSE)
    if marks != (1, 1) or end < start:
        raise InputError(f"mark one word of '{text}' with brackets: She sat on the [bank]")
    plain = text[:start] + text[start + 1 : end] + text[end + 1 :]
    sentence = by.tokenize(plain)
    inside = [
        k
        for k, (first, last) in enumerate(sentence.spans or ())
        if first < end - 1 and last > start
    ]
    if len(inside) != 1:
        marked = text[start + 1 : end]
        raise InputError(f"'{marked}' in brackets is {len(inside)} tokens; mark one word")
    return sentence, inside[0]

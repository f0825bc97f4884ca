"""Words that a model finds likely at a position in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from elmore.compute.network import LstmState
from elmore.compute.softmax import Likeliest, LogSoftmax
from elmore.compute.workers import one_blas_thread
from elmore.embedding.search import largest
from elmore.errors import ConfigError, FormatError
from elmore.language_model.predictions import Array, Ids, LanguageModel, Logs, read_sentence
from elmore.options import BATCH_TOKENS
from elmore.text.batching import Batch, plan_batches
from elmore.text.tokenizer import Sentence

if TYPE_CHECKING:
    from elmore.elmo import Elmo

# Positions whose sentences are computed together.
_POSITIONS = 512
# "the bank and __" and "__ and the bank" ask for words of the same kind as the one that is there.
# Weights of 0.2, 0.5 and 1 gave .387, .407 and .396 as correlation with judged pairs of uses
# (DWUG), none gave .341.
_JOINER, _PATTERN = "and", 0.5


def next_words(elmo: Elmo, tokens: str | Sequence[str], k: int = 10) -> list[tuple[str, float]]:
    """The words that are likely to follow the beginning of a sentence.

    Args:
        elmo: a model that has a softmax.
        tokens: the beginning, as tokens or as text.
        k: how many words.

    Returns:
        (word, log probability), the most likely first; markers and `<UNK>` are left out.

    Examples:
        >>> len(next_words(elmo, ["Stocks"], k=3))
        3
    """
    model, sentence = LanguageModel(elmo), read_sentence(elmo, tokens)
    return _best(model, model.log_distribution(model.top(sentence)[len(sentence), None], 0)[0], k)


def previous_words(elmo: Elmo, tokens: str | Sequence[str], k: int = 10) -> list[tuple[str, float]]:
    """The words that are likely to come before the rest of a sentence, as `next_words`."""
    model, sentence = LanguageModel(elmo), read_sentence(elmo, tokens)
    if not model.bidirectional:
        raise ConfigError("this model has no backward direction; use next_words")
    return _best(model, model.log_distribution(model.top(sentence)[1, None], 1)[0], k)


def substitutes(
    elmo: Elmo, tokens: str | Sequence[str], position: int, k: int = 10
) -> list[tuple[str, float]]:
    """The words that are likely at a position in a sentence, given all words around it.

    If the words before and after were independent given the word (Bayes' rule), then
    p(w | before, after) would be p(w | before) p(w | after) / p(w), scaled to a sum of 1. A
    checkpoint has no p(w), but its vocabulary is in order of frequency, so Zipf's law gives it:
    1 / rank. The division keeps frequent words from counting twice: on held-out Wikipedia text,
    with a model trained on 8 M tokens, the word that was there has perplexity 68 with it and 229
    without. A model of one direction uses the words before alone.

    Args:
        elmo: a model that has a softmax.
        tokens: the sentence, as tokens or as text.
        position: of a token, from 0; the word that is there is judged like any other.
        k: how many words.

    Returns:
        (word, log of its share), the most likely first; markers and `<UNK>` are left out.

    Examples:
        >>> words = substitutes(elmo, ["She", "fell", "."], 1, k=5)
        >>> len(words), words[0][1] >= words[1][1]
        (5, True)
    """
    return substitutes_at(elmo, [(read_sentence(elmo, tokens), position)], k)[0]


def substitutes_at(
    elmo: Elmo,
    places: Sequence[tuple[Sentence, int]],
    k: int = 10,
    *,
    batch_tokens: int = BATCH_TOKENS,
) -> list[list[tuple[str, float]]]:
    """What `substitutes` gives for positions of several sentences, computed together."""
    predictor = PositionPredictor(elmo)
    check_positions(places)
    if k < 1:
        raise ConfigError(f"k={k} asks for no word; use 1 or more")
    sentences = [sentence for sentence, _ in places]
    positions = [np.array([position]) for _, position in places]
    words = predictor.model.vocabulary.words
    results: list[list[tuple[str, float]]] = []
    for start in range(0, len(places), _POSITIONS):
        some = slice(start, start + _POSITIONS)
        found = predictor.likeliest(
            predictor.hidden(sentences[some], positions[some], batch_tokens), k
        )
        logs = found.values - found.total[:, None]
        results += [
            [(words[i], float(value)) for i, value in zip(ids, mine, strict=True)]
            for ids, mine in zip(found.ids, logs, strict=True)
        ]
    return results


def check_positions(places: Sequence[tuple[Sentence, int]]) -> None:
    """Refuse positions that their sentences do not have."""
    for sentence, position in places:
        if not 0 <= position < len(sentence):
            known = f"positions 0..{len(sentence) - 1}" if len(sentence) else "no token"
            raise ConfigError(f"position={position} but the sentence has {known}; use one of them")


class PositionPredictor:
    """How likely words are at positions, given everything around them: see `substitutes`.

    Args:
        elmo: a model that has a softmax.
        n_words: judge the most frequent words only; all by default.
        pattern: also ask which words could be joined to the one that is there by "and", if the
            model knows that word.
    """

    def __init__(self, elmo: Elmo, n_words: int | None = None, *, pattern: bool = False) -> None:
        self.model = model = LanguageModel(elmo)
        self.table = elmo.log_softmax
        if n_words is not None and n_words < len(model.vocabulary):
            weight = model.softmax.stored.rows(slice(n_words))
            int8 = elmo.precision == "int8"
            self.table = LogSoftmax(weight, model.softmax.bias[:n_words], int8=int8)
        # Both directions count how frequent a word is, so that it is divided out once.
        n_words = min(n_words or len(model.vocabulary), len(model.vocabulary))
        rank = np.arange(1, n_words + 1)
        self.prior = np.log(rank if model.bidirectional else np.ones(len(rank))).astype(np.float32)
        self.special = [k for k in model.special if k < n_words]
        self.prior[self.special] = -np.inf
        known = pattern and _JOINER in model.vocabulary
        self._joiner = model.engine.word_vectors([_JOINER]) if known else None

    def hidden(
        self,
        sentences: Sequence[Sentence],
        positions: Sequence[Ids],
        batch_tokens: int,
        keep: Callable[[Ids, Array], None] | None = None,
    ) -> Array:
        """The states from which each direction predicts the words at chosen positions.

        Args:
            sentences: the text.
            positions: positions in each sentence, (n,), or first and last token of spans, (n, 2); a
                sentence without is not computed.
            batch_tokens: token budget of a batch.
            keep: called with where positions are in the result, (n,), and with all layers of their
                (first) tokens, (layers, n, dim).

        Returns:
            top-layer vectors, (directions, positions of all sentences, dim); with the pattern those
            after "and" follow, (2 * directions, ...).
        """
        model, dim = self.model, self.model.softmax.weight.shape[1]
        counts = np.array([len(mine) for mine in positions], np.int64)
        ends = np.cumsum(counts)
        spans = [np.zeros((2, 0), np.int64)]
        spans += [np.broadcast_to(mine.T, (2, len(mine))) for mine in positions]
        # Token t is at t + 1, after the marker.
        every = np.concatenate(spans, axis=1) + 1
        n, joiner = 1 + model.bidirectional, self._joiner
        hidden = np.zeros((n if joiner is None else 2 * n, every.shape[1], dim), np.float32)
        busy = [k for k, count in enumerate(counts) if count]
        for rows in plan_batches([len(sentences[k]) for k in busy], batch_tokens=batch_tokens):
            members = [busy[row] for row in rows]
            batch = model.engine.indexer.batch([sentences[k].tokens for k in members])
            here = np.concatenate([np.arange(ends[k] - counts[k], ends[k]) for k in members])
            first, last = every[:, here]
            rows = np.repeat(np.arange(len(members)), counts[members])
            # Each direction has just read the word itself.
            at = None if joiner is None else np.stack([rows, last, first][: 1 + n], axis=1)
            layers, state = model.engine.run(batch, at=at)
            # The forward direction has read all before the word, the backward one all after it.
            hidden[0, here] = model.half(layers[-1, rows, first - 1], 0)
            if model.bidirectional:
                hidden[1, here] = model.half(layers[-1, rows, last + 1], 1)
            if joiner is not None:
                hidden[n:, here] = self._read_on(state, len(here))
            if keep is not None:
                keep(here, layers[:, rows, first])
        return hidden

    def _read_on(self, state: LstmState, n: int) -> Array:
        """Read "and" in n states, one step for each direction, (directions, n, dim)."""
        zeros = np.zeros((n, 1), np.int64)
        batch = Batch(None, None, zeros, np.ones(n, np.int64), zeros)
        layers, _ = self.model.engine.run(batch, state, self._joiner)
        top = layers[-1, :, 0]
        return np.stack([self.model.half(top, d) for d in range(1 + self.model.bidirectional)])

    def _joined(self, hidden: Array) -> tuple[Array, float]:
        """One vector for each direction, and how many predictions it stands for."""
        if self._joiner is None:
            return hidden, 1.0
        n = len(hidden) // 2
        return hidden[:n] + np.float32(_PATTERN) * hidden[n:], 1.0 + _PATTERN

    def likeliest(self, hidden: Array, k: int, *, rounded: bool = False) -> Likeliest:
        """The k likeliest words at positions, markers and `<UNK>` left out; ties by id.

        Args:
            hidden: of `hidden`.
            k: how many words; fewer if the vocabulary has fewer.
            rounded: see `LogSoftmax.likeliest`.
        """
        engine = self.model.engine
        hidden, scale = self._joined(hidden)
        prior = np.float32(scale) * self.prior
        k, table = min(k, len(self.prior) - len(self.special)), self.table
        parts = np.array_split(hidden, max(1, min(engine.workers.count, hidden.shape[1])), axis=1)
        with one_blas_thread():
            done = engine.workers.share(
                [
                    partial(table.likeliest, list(part), prior, k, rounded=rounded, scale=scale)
                    for part in parts
                ]
            )
        found = Likeliest(*map(np.concatenate, zip(*done, strict=True)))
        if not np.isfinite(found.total).all():
            raise FormatError("the softmax gives values that are not finite; the model is damaged")
        return found

    def values(self, hidden: Array, ids: Ids) -> Array:
        """Log probabilities of chosen words at one position, up to a constant of that position.

        `hidden` is of one position, (directions, dim); `ids` are words, (n,).
        """
        # The pattern is for vectors; it makes substitutes worse (GAP 44.2 instead of 45.1).
        plain = hidden[: 1 + self.model.bidirectional]
        return np.asarray(self.table.chosen(plain, ids) + self.prior[ids], np.float32)


def _best(model: LanguageModel, logs: Logs, k: int) -> list[tuple[str, float]]:
    """The k words of highest value, markers and `<UNK>` left out; ties by id."""
    if k < 1:
        raise ConfigError(f"k={k}; use 1 or more")
    logs = logs.copy()
    logs[model.special] = -np.inf
    order = largest(logs, min(k, len(logs) - len(model.special)))
    return [(model.vocabulary.words[i], float(logs[i])) for i in order]

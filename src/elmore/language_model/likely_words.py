"""Words that a model finds likely at a place in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from elmore.embedding.elmo import Elmo
from elmore.embedding.stream import BATCH_TOKENS
from elmore.errors import ConfigError
from elmore.language_model.predictions import LanguageModel, Logs, log_sum, read_sentence
from elmore.text.batching import plan_batches
from elmore.text.sentence import Sentence

__all__ = ["next_words", "previous_words", "substitutes", "substitutes_at"]

# Places whose distributions over all words are held at once: 13 MB for 50,000 words.
_PLACES = 32


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
    """The words that are likely at a place in a sentence, given all words around it.

    If the words before and after were independent given the word (Bayes' rule), then
    p(w | before, after) would be p(w | before) p(w | after) / p(w), scaled to a sum of 1. A
    checkpoint has no p(w), but its vocabulary is in order of frequency, so Zipf's law gives it:
    1 / rank. The division keeps frequent words from counting twice: on held-out Wikipedia text,
    with a model trained on 8 M tokens, the word that was there has perplexity 68 with it and 229
    without. A model of one direction uses the words before alone.

    Args:
        elmo: a model that has a softmax.
        tokens: the sentence, as tokens or as text.
        position: the place, from 0; the word that is there is judged like any other.
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
    """What `substitutes` gives for several sentences and a position in each, computed together."""
    model = LanguageModel(elmo)
    for sentence, position in places:
        if not 0 <= position < len(sentence):
            known = f"places 0..{len(sentence) - 1}" if len(sentence) else "no place"
            raise ConfigError(f"position={position} but the sentence has {known}; use one of them")
    results: list[list[tuple[str, float]]] = [[] for _ in places]
    lengths = [len(sentence) for sentence, _ in places]
    for rows in plan_batches(lengths, batch_tokens=batch_tokens):
        for start in range(0, len(rows), _PLACES):
            some = rows[start : start + _PLACES].tolist()
            logs = _log_shares(model, [places[row] for row in some])
            for row, values in zip(some, logs, strict=True):
                results[row] = _best(model, values, k)
    return results


def _log_shares(model: LanguageModel, places: Sequence[tuple[Sentence, int]]) -> Logs:
    """The log of every word's share at each place, (n, n_words)."""
    batch = model.engine.indexer.batch([sentence.tokens for sentence, _ in places])
    layers, _ = model.engine.run(batch)
    top, rows = layers[-1], range(len(places))
    logs = model.log_distribution(top[rows, [place for _, place in places]], 0)
    if model.bidirectional:
        after = top[rows, [place + 2 for _, place in places]]
        rank = np.arange(1, logs.shape[1] + 1)  # 1 / p(w) by Zipf's law
        logs = logs + model.log_distribution(after, 1) + np.log(rank)
    # A marker or <UNK> is no word that could be there; the others share all the probability.
    logs[:, model.special] = -np.inf
    return np.asarray(logs - log_sum(logs))


def _best(model: LanguageModel, logs: Logs, k: int) -> list[tuple[str, float]]:
    """The k words of highest value, markers and `<UNK>` left out; ties by id."""
    if k < 1:
        raise ConfigError(f"k={k}; use 1 or more")
    logs = logs.copy()
    logs[model.special] = -np.inf
    k = min(k, len(logs) - len(model.special))
    if k == 0:
        return []
    # Sorting all words for the first ten of them would take longer than the model.
    likely = np.flatnonzero(logs >= np.partition(logs, -k)[-k])
    order = likely[np.argsort(-logs[likely], kind="stable")[:k]]
    return [(model.vocabulary.words[i], float(logs[i])) for i in order]

"""Perplexity as bilm-tf measures it: sentences end to end, the state carried over their borders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from elmore.elmo import Elmo
from elmore.embedding.inputs import sentences_of
from elmore.errors import ConfigError, InputError
from elmore.language_model.perplexity import Perplexity, tally
from elmore.language_model.predictions import Ids, LanguageModel, Logs
from elmore.options import BATCH_TOKENS
from elmore.text.batching import Batch

__all__ = ["perplexity_stream"]


def perplexity_stream(
    elmo: Elmo,
    sentences: Iterable[str] | Iterable[Sequence[str]],
    *,
    batch_size: int = 256,
    tokenized: bool = False,
) -> Perplexity:
    """Measure as bilm-tf's `run_test.py` does; its figures differ from those of `perplexity`.

    Sentences stand end to end in `batch_size` rows, each row taking the next sentence when it has
    none left; the state goes on over their borders, the marker that closes a sentence is predicted
    but never read, and what does not fill all rows at the end is dropped. `mean` is what bilm-tf
    prints.

    Args:
        elmo: a model that has a softmax.
        sentences: text, a sentence each.
        batch_size: number of rows.
        tokenized: whether the sentences are lists of tokens.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size={batch_size}; use 1 or more")
    model = LanguageModel(elmo)
    begin, end = model.markers
    marked = ((begin, *s.tokens, end) for s in sentences_of(sentences, tokenized, elmo.tokenize))
    steps = _fill_rows(marked, batch_size)
    states = [model.engine.zero_state(batch_size) for _ in elmo.config.directions]
    total = Perplexity(backward_loss=0.0 if model.bidirectional else None)
    while window := list(islice(steps, max(1, BATCH_TOKENS // batch_size))):
        logs: list[Logs] = []
        ids: list[Ids] = []
        for direction, state in enumerate(states):
            # Backward the place is counted from the end: its words are -1, -2, …
            reads = [[w[~p if direction else p] for w, p in step] for step in window]
            wanted = [w[~(p + 1) if direction else p + 1] for step in window for w, p in step]
            layers, states[direction] = model.engine.run(_row_batch(model, reads, direction), state)
            hidden = model.half(layers[-1], direction).swapaxes(0, 1)  # (steps, rows, dim)
            hidden = (hidden[::-1] if direction else hidden).reshape(-1, hidden.shape[2])
            ids.append(model.vocabulary.encode(wanted))
            logs.append(model.log_probs(hidden, ids[-1]))
        total += tally(
            model.unknown,
            logs,
            ids,
            n_sentences=sum(place == 0 for step in window for _, place in step),
            n_markers=sum(place == len(words) - 2 for step in window for words, place in step),
        )
    if not total.n_tokens:
        raise InputError(
            f"there are too few sentences to fill {batch_size} rows; use a smaller batch_size"
        )
    return total


def _fill_rows(
    sentences: Iterator[tuple[str, ...]], batch_size: int
) -> Iterator[list[tuple[tuple[str, ...], int]]]:
    """Give each row's sentence and its place in it, step by step, until a row finds no more.

    All rows draw from the same sentences; the last word of one is never a place of its own.
    """
    rows: list[tuple[tuple[str, ...], int]] = [((), 0)] * batch_size
    while True:
        for k, (words, place) in enumerate(rows):
            if place >= len(words) - 1:
                following = next(sentences, None)
                if following is None:
                    return
                rows[k] = following, 0
        yield list(rows)
        rows = [(words, place + 1) for words, place in rows]


def _row_batch(model: LanguageModel, steps: Sequence[Sequence[str]], direction: int) -> Batch:
    """Index rows of words as they are, without further markers.

    Args:
        model: how words become ids.
        steps: the word that each row reads, step by step.
        direction: 1 turns the rows round, because that direction begins at their end.
    """
    seen: dict[str, int] = {}
    index = np.array([[seen.setdefault(w, len(seen)) for w in step] for step in steps]).T
    indexer, words = model.engine.indexer, list(seen)
    return Batch(
        words=None if indexer.alphabet is None else indexer.alphabet.encode(words),
        word_ids=None if indexer.vocabulary is None else indexer.vocabulary.encode(words),
        index=(index[:, ::-1] if direction else index).copy(),
        lengths=np.full(len(index), len(steps), np.int64),
        positions=np.arange(len(index)),
    )

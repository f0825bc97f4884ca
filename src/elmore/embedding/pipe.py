"""A stream of sentences in, a stream of results out: same order, bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from elmore.embedding.engine import Engine
from elmore.embedding.finishing import Finish
from elmore.embedding.long_input import LONG_TOKENS, is_long, read_long
from elmore.text.batching import Batch, plan_batches
from elmore.text.sentence import Sentence

__all__ = ["BATCH_TOKENS", "embed_stream", "windows"]

Result = TypeVar("Result")

# More rows than this gain little (128 sentences of ordinary length keep the LSTMs busy), and
# memory stays small.
BATCH_TOKENS = 4096
# How far to read ahead: sentences of nearly equal length then fill a batch (of 64 rows, 58 are
# alive in an average step after sorting 1,024 sentences, 28 in the order of a corpus).
_WINDOW_SENTENCES = 1024
# Of long sentences fewer fill a window: its results are held until the last one is there.
_WINDOW_TOKENS = 65_536
# Places of the index of a whole window (sentences times the longest), 8 bytes each.
_MOST_PLACES = 4_000_000


def embed_stream(
    engine: Engine,
    sentences: Iterable[Sentence],
    finish: Finish[Result],
    *,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[Result]:
    """Embed sentences, a window at a time.

    Args:
        engine: the model.
        sentences: what to embed; read ahead by one window.
        finish: makes the result from a sentence and its layers without markers.
        batch_tokens: token budget of a batch.
    """
    for window in windows(sentences):
        yield from _embed_window(engine, window, finish, batch_tokens)


def windows(sentences: Iterable[Sentence]) -> Iterator[list[Sentence]]:
    """Cut a stream into lists of sentences, each to be sorted by length and put into batches."""
    window: list[Sentence] = []
    tokens = 0
    for sentence in sentences:
        window.append(sentence)
        tokens += len(sentence) + 2
        if len(window) >= _WINDOW_SENTENCES or tokens >= _WINDOW_TOKENS:
            yield window
            window, tokens = [], 0
    if window:
        yield window


def _embed_window(
    engine: Engine,
    window: list[Sentence],
    finish: Finish[Result],
    batch_tokens: int,
) -> list[Result]:
    results: list[Result | None] = [None] * len(window)
    # An empty sentence needs no computation, whatever its markers would give.
    busy = [k for k, sentence in enumerate(window) if len(sentence)]
    engine.warn_of_length(max((len(sentence) for sentence in window), default=0))
    longest = max(LONG_TOKENS, batch_tokens)
    long = [k for k in busy if is_long(engine, len(window[k]), longest)]
    for k in long:
        with read_long(engine, window[k].tokens) as layers_of_it:
            results[k] = finish.pieces(window[k], layers_of_it.pieces())
    busy = [k for k in busy if results[k] is None]
    if busy:
        _embed_short(engine, window, busy, finish, batch_tokens, results)
    nothing = (engine.config.n_layers, 0, engine.config.dim)
    return [
        finish.whole(window[k], np.zeros(nothing, np.float32)) if result is None else result
        for k, result in enumerate(results)
    ]


def _embed_short(
    engine: Engine,
    window: list[Sentence],
    busy: list[int],
    finish: Finish[Result],
    batch_tokens: int,
    results: list[Result | None],
) -> None:
    """Embed the sentences `busy` of a window in batches, and put down their results."""

    def compute(batch: Batch, bottom: NDArray[np.float32] | None = None) -> None:
        values, _ = engine.run(batch, vectors=bottom)
        for row, k in enumerate(batch.positions.tolist()):
            results[k] = finish.whole(window[k], values[:, row, 1 : len(window[k]) + 1])

    lengths = [len(window[k]) for k in busy]
    if engine.on_cpu:
        batch_tokens = _balanced(lengths, batch_tokens, engine.workers.count)
    plan = plan_batches(lengths, batch_tokens=batch_tokens)
    if not engine.on_cpu or len(plan) == 1 or max(lengths) * len(busy) > _MOST_PLACES:
        for rows in plan:
            members = [busy[row] for row in rows]
            compute(engine.indexer.batch([window[k].tokens for k in members], members))
        return
    # The words of all batches are computed first, each once; then batches run side by side, which
    # keeps more processors busy than the two directions of one.
    everything = engine.indexer.batch([window[k].tokens for k in busy], busy)
    vectors = engine.vectors(everything)

    def job(rows: NDArray[np.int64]) -> None:
        batch, words = everything.some(rows)
        compute(batch, vectors[words])

    engine.workers.run([partial(job, rows) for rows in plan])


def _balanced(lengths: list[int], batch_tokens: int, workers: int) -> int:
    """Make batches smaller, by a half at most, so that all workers get equally many."""
    tokens = sum(lengths) + 2 * len(lengths)
    if workers == 1 or batch_tokens < 2 or tokens <= batch_tokens:
        return batch_tokens  # of a single batch the two directions are shared
    rounds = -(-tokens // (batch_tokens * workers))
    # Some more than the share: rows of a batch are counted as long as its longest.
    equal = int(1.05 * tokens / (rounds * workers))
    return min(batch_tokens, max(-(-batch_tokens // 2), equal))

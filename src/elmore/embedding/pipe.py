"""A stream of sentences in, a stream of results out: same order, bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from elmore.embedding.engine import Engine
from elmore.embedding.finishing import Finish
from elmore.embedding.long_input import LONG_TOKENS, is_long, read_long
from elmore.text.batching import plan_batches
from elmore.text.sentence import Sentence

__all__ = ["BATCH_TOKENS", "embed_stream", "windows"]

Result = TypeVar("Result")

# More rows than this gain little (128 sentences of ordinary length keep the LSTMs busy), and
# memory stays small.
BATCH_TOKENS = 4096
# How far to read ahead: sentences of nearly equal length then fill a batch (perf: of 64 rows, 58
# are alive in an average step after sorting 1,024 sentences, 28 in the order of a corpus).
_WINDOW_SENTENCES = 1024
# Of long sentences fewer fill a window: its results are held until the last one is there.
_WINDOW_TOKENS = 65_536


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
    longest = max(LONG_TOKENS, batch_tokens)
    long = [k for k in busy if is_long(engine, len(window[k]), longest)]
    for k in long:
        with read_long(engine, window[k].tokens) as layers_of_it:
            results[k] = finish.pieces(window[k], layers_of_it.pieces())
    busy = [k for k in busy if results[k] is None]
    plan = plan_batches([len(window[k]) for k in busy], batch_tokens=batch_tokens)
    for rows in plan:
        members = [busy[row] for row in rows]
        batch = engine.indexer.batch([window[k].tokens for k in members], members)
        layers, _ = engine.run(batch)
        values = layers.values.cpu()
        for row, k in enumerate(members):
            results[k] = finish.whole(window[k], values[:, row, 1 : len(window[k]) + 1])
    nothing = engine.zero_state(0).hidden.new_zeros(engine.config.n_layers, 0, engine.config.dim)
    return [
        finish.whole(window[k], nothing.cpu()) if result is None else result
        for k, result in enumerate(results)
    ]

"""A stream of sentences in, a stream of results out: same order, bounded memory."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar, cast
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import SILENT, Progress
from elmore.embedding.engine import Engine
from elmore.embedding.results import (
    Array,
    Finish,
    finite,
    layer_weights,
    mix_layers,
    pool,
    value_shape,
)
from elmore.embedding.sif import Sif
from elmore.embedding.vector_files import Record
from elmore.options import LayerChoice, Output
from elmore.text.batching import Batch, plan_batches
from elmore.text.tokenizer import Sentence

Item = TypeVar("Item")
Result = TypeVar("Result")

# How far to read ahead: sentences of nearly equal length then fill a batch. Of 64 rows, 58 are
# alive in an average step after sorting 1,024 sentences, and 28 in the order of a corpus.
_WINDOW_SENTENCES = 1024
# Fewer sentences fill a window if they are long: its results are held until the last one is there.
_WINDOW_TOKENS = 65_536
# Positions in the index of a complete window (sentences times the longest), 8 bytes each.
_MAX_POSITIONS = 4_000_000
# A model may diverge on sequences that are this many times longer than those it was trained on.
_MUCH_LONGER = 4
_WARNED: WeakSet[Engine] = WeakSet()


def embed_stream(
    engine: Engine,
    sentences: Iterable[Sentence],
    finish: Finish[Result],
    *,
    batch_tokens: int | None = None,
    progress: Progress = SILENT,
) -> Iterator[tuple[Sentence, Result]]:
    """Embed sentences, one window at a time.

    Args:
        engine: the model.
        sentences: what to embed; read ahead by one window.
        finish: makes the result from a sentence and its layers without markers.
        batch_tokens: token budget of a batch; the engine's by default.
        progress: counts sentences, batch by batch.

    Yields:
        each sentence with its result, in order.
    """
    budget = engine.batch_tokens if batch_tokens is None else batch_tokens
    for window in windows(sentences, len):
        results = _embed_window(engine, window, finish, budget, progress)
        yield from zip(window, results, strict=True)


def finish_of(engine: Engine, output: Output) -> Finish[Array]:
    """What makes the result of a sentence: its layers mixed, (time, dim), and pooled, (dim,).

    With all layers it is (layers, time, dim), or (layers, dim) if pooled.

    Raises:
        ConfigError: the model does not have these layers.
    """
    value_shape(engine.config, output)
    how, weights = output.pool, None
    if how == "sif":
        return Sif(engine)
    if not output.all_layers:
        weights = layer_weights(cast(LayerChoice, output.layers), engine.config.n_layers)

    def finish(sentence: Sentence, values: Array) -> Array:
        # What overflows is reported once, by `finite`.
        with np.errstate(over="ignore", invalid="ignore"):
            result = values.copy() if weights is None else mix_layers(values, weights)
            if how is not None:
                result = pool(result, how)
        return finite(sentence.tokens, result)

    return finish


def embed_records(
    engine: Engine, sentences: Iterable[tuple[str, Sentence]], output: Output
) -> Iterator[Record]:
    """Embed a stream for the writers.

    Args:
        engine: the model.
        sentences: each as text and as tokens; read ahead by one window.
        output: what comes out; numbers stay float32 until they are written.
    """
    read, again = itertools.tee(sentences)
    results = embed_stream(engine, (sentence for _, sentence in again), finish_of(engine, output))
    for (text, _), (sentence, values) in zip(read, results, strict=True):
        yield Record(text, sentence.tokens, sentence.spans, values)


def windows(items: Iterable[Item], length: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Divide a stream into lists, each to be sorted by length and put into batches.

    The items are sentences, or hold one of so many tokens as `length` says.
    """
    window: list[Item] = []
    tokens = 0
    for item in items:
        window.append(item)
        tokens += length(item) + 2  # with its markers
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
    progress: Progress,
) -> list[Result]:
    if isinstance(finish, Sif):
        # It needs no context, so that the LSTMs are not run.
        flat = engine.word_vectors([token for sentence in window for token in sentence.tokens])
        ends = np.cumsum([len(sentence) for sentence in window])
        parts = np.split(flat, ends[:-1])
        progress.update(len(window))
        pairs = zip(window, parts, strict=True)
        return [cast(Result, finish(sentence, part[None])) for sentence, part in pairs]
    _warn_of_length(engine, max((len(sentence) for sentence in window), default=0))
    nothing = np.zeros((engine.config.n_layers, 0, engine.config.dim), np.float32)
    # An empty sentence needs no computation, whatever its markers would give.
    busy = [k for k, sentence in enumerate(window) if len(sentence)]
    results = {k: finish(s, nothing) for k, s in enumerate(window) if not len(s)}
    progress.update(len(results))

    def compute(batch: Batch, bottom: Array | None = None) -> int:
        values, _ = engine.run(batch, vectors=bottom)
        for row, k in enumerate(batch.positions.tolist()):
            results[k] = finish(window[k], values[:, row, 1 : len(window[k]) + 1])
        return len(batch.positions)

    lengths = [len(window[k]) for k in busy]
    if engine.on_cpu:
        batch_tokens = _balanced(lengths, batch_tokens, engine.workers.count)
    plan = plan_batches(lengths, batch_tokens=batch_tokens)
    if not engine.on_cpu or len(plan) < 2 or max(lengths) * len(busy) > _MAX_POSITIONS:
        for rows in plan:
            members = [busy[row] for row in rows]
            batch = engine.indexer.batch([window[k].tokens for k in members], members)
            progress.update(compute(batch))
    else:
        # The words of all batches are computed first, each once; then batches run side by side,
        # which keeps more processors busy than the two directions of one.
        everything = engine.indexer.batch([window[k].tokens for k in busy], busy)
        vectors = engine.vectors(everything)

        def job(rows: NDArray[np.int64]) -> int:
            batch, words = everything.some(rows)
            return compute(batch, vectors[words])

        engine.workers.run([partial(job, rows) for rows in plan], done=progress.update)
    return [results[k] for k in range(len(window))]


def _warn_of_length(engine: Engine, n_tokens: int) -> None:
    """Warn once of a sequence much longer than any that the model was trained on."""
    training = engine.checkpoint.notes.get("training")
    longest = training.get("longest") if isinstance(training, dict) else None
    if not isinstance(longest, int) or n_tokens <= _MUCH_LONGER * longest or engine in _WARNED:
        return
    _WARNED.add(engine)
    warnings.warn(
        f"a sequence of {n_tokens} tokens, but the model was trained on at most {longest}; "
        "its vectors may be meaningless, so split the text into sentences",
        stacklevel=2,
    )


def _balanced(lengths: list[int], batch_tokens: int, workers: int) -> int:
    """Make batches smaller, by a half at most, so that all workers get equally many."""
    tokens = sum(lengths) + 2 * len(lengths)
    if workers == 1 or batch_tokens < 2 or tokens <= batch_tokens:
        return batch_tokens  # the two directions of a single batch are shared
    rounds = -(-tokens // (batch_tokens * workers))
    # A little more than the share: rows of a batch are counted as long as its longest.
    equal = int(1.05 * tokens / (rounds * workers))
    return min(batch_tokens, max(-(-batch_tokens // 2), equal))

"""Training batches of sentences, each on its own.

Every kind of batches knows where it is (`cursor`) and can resume from there, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.corpus.prepared import Shard
from elmore.text.batching import TokenIndexer
from elmore.text.vocabulary import Vocabulary
from elmore.training.seeds import numpy_generator

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LmBatch:
    """A batch of language-model training; each direction has its own rows and targets.

    Rows are packed as in `compute/recurrence.py`: step by step, and in each step the first
    `sizes[t]` sequences.

    Attributes:
        words: distinct words as character ids, (n_words, chars), or None.
        word_ids: distinct words as rows of the word table, (n_words,), or None.
        sizes: sequences alive at each step.
        rows: for each direction, the word that each packed row reads, (n_rows,).
        targets: for each direction, the word id that each packed row should predict, (n_rows,).
        total: predictions of one direction in the batches of all processes together.
        fresh: None if every sequence starts from zeros and is complete. Otherwise the sequences
            continue those of the last such batch, except where this is true, (sizes[0],).
    """

    words: NDArray[np.int32] | None
    word_ids: NDArray[np.int64] | None
    sizes: tuple[int, ...]
    rows: tuple[NDArray[np.int64], ...]
    targets: tuple[NDArray[np.int64], ...]
    total: int
    fresh: NDArray[np.bool_] | None = None

    @property
    def n_tokens(self) -> int:
        """Predictions of one direction in this process."""
        return len(self.targets[0])


@dataclass(frozen=True, kw_only=True)
class Source:
    """What the batches of a run are made from.

    Attributes:
        read: gives a shard by its number.
        sizes: the sentences of each shard.
        indexer: makes ids of the words that are read.
        vocabulary: the words that are predicted.
        seed: decides the order.
        directions: 2, or 1 for the forward direction only.
        rank: the number of this process, of `world`.
        world: how many processes share the batches.
    """

    read: Callable[[int], Shard]
    sizes: Sequence[int]
    indexer: TokenIndexer
    vocabulary: Vocabulary
    seed: int
    directions: int = 2
    rank: int = 0
    world: int = 1

    def order(self, *names: str | int) -> list[int]:
        """The order of the shards for one purpose."""
        order: list[int] = numpy_generator(self.seed, *names).permutation(len(self.sizes)).tolist()
        return order


class SentenceBatches:
    """Each sentence on its own, in batches of nearly equal length.

    Shards come in a new order in each epoch; within a shard the sentences are shuffled, taken in
    pools, sorted by length, cut by a token budget, and the batches of a pool shuffled. With
    several processes each takes its share of the rows of every batch, so that two processes do
    together what one would do alone; of a batch with fewer rows than processes some get none.

    `batch_tokens` counts the predictions of a batch over all processes. Sentences longer than
    `max_length` are cut into pieces. `pool` sentences are sorted together.
    """

    def __init__(self, source: Source, *, batch_tokens: int, max_length: int, pool: int) -> None:
        self._source = source
        self._batch_tokens, self._max_length, self._pool = batch_tokens, max_length, pool
        self._epoch = self._shard = self._batch = 0
        self._loaded: tuple[tuple[int, int], _Encoded, list[Ints]] | None = None

    def next(self) -> LmBatch:
        encoded, plan = self._current()
        while self._batch >= len(plan):
            self._shard, self._batch = self._shard + 1, 0
            if self._shard >= len(self._source.sizes):
                self._epoch, self._shard = self._epoch + 1, 0
            encoded, plan = self._current()
        pieces = plan[self._batch]
        self._batch += 1
        # Every world-th row: the share stays sorted by length, as packing needs, and all shares are
        # nearly equal. All processes count all rows, so that they agree on the mean of the loss.
        total = int((encoded.ends[pieces] - encoded.starts[pieces] + 1).sum())
        return encoded.batch(pieces[self._source.rank :: self._source.world], total)

    def cursor(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "shard": self._shard, "batch": self._batch}

    def restore(self, cursor: Mapping[str, Any]) -> None:
        self._epoch, self._shard = int(cursor["epoch"]), int(cursor["shard"])
        self._batch = int(cursor["batch"])

    def _current(self) -> tuple[_Encoded, list[Ints]]:
        # Order and plan depend on seed, epoch and shard alone, so that a resumed run makes the same
        # ones without reading what came before (C3).
        key = (self._epoch, self._shard)
        if self._loaded is None or self._loaded[0] != key:
            shard = self._source.read(self._source.order("shards", self._epoch)[self._shard])
            encoded = _Encoded(shard, self._source, self._max_length)
            self._loaded = (key, encoded, self._plan(encoded))
        return self._loaded[1], self._loaded[2]

    def _plan(self, encoded: _Encoded) -> list[Ints]:
        """Cut the pieces of a shard into batches."""
        generator = numpy_generator(self._source.seed, "pool", self._epoch, self._shard)
        lengths = encoded.ends - encoded.starts + 1
        order = generator.permutation(len(lengths))
        # Sentences of similar length keep all steps of a batch wide; pools, not the complete
        # shard, are sorted, so that enough of the shuffle is left.
        plan: list[Ints] = []
        for start in range(0, len(order), self._pool):
            pool = order[start : start + self._pool]
            # Stable, so that equal lengths stay in their shuffled order.
            pool = pool[np.argsort(-lengths[pool], kind="stable")]
            cuts = _cut(lengths[pool], self._batch_tokens)
            batches = [pool[a:b] for a, b in zip([0, *cuts], [*cuts, len(pool)], strict=True)]
            plan += [batches[k] for k in generator.permutation(len(batches))]
        return plan


def _cut(lengths: Ints, budget: int) -> list[int]:
    """Find where falling lengths must be cut so that no part exceeds the budget."""
    cuts, total = [], 0
    for k, length in enumerate(lengths.tolist()):
        # A sentence over the budget is a batch of its own: there is no cut before the first.
        if total and total + length > budget:
            cuts.append(k)
            total = 0
        total += length
    return cuts


class _Encoded:
    """A shard with its types as character ids and vocabulary ids, made once for all its batches."""

    def __init__(self, shard: Shard, source: Source, max_length: int) -> None:
        indexer, vocabulary = source.indexer, source.vocabulary
        types = [*shard.types, *indexer.markers]
        self._begin, self._end = len(types) - 2, len(types) - 1
        self._tokens = shard.tokens
        self._characters = None if indexer.alphabet is None else indexer.alphabet.encode(types)
        self._word_ids = None if indexer.vocabulary is None else indexer.vocabulary.encode(types)
        self._targets = vocabulary.encode([*shard.types, *vocabulary.markers])
        self._directions = source.directions
        self.starts, self.ends = _pieces(shard.sentences, max_length)

    def batch(self, pieces: Ints, total: int) -> LmBatch:
        """Pack pieces, which come longest first; forward predicts right, backward left."""
        starts, lengths = self.starts[pieces], self.ends[pieces] - self.starts[pieces]
        steps = int(lengths[0]) + 1 if len(lengths) else 0
        # places[r, t]: type at place t of sentence r between its markers. The backward direction
        # reads the same places from the end, so one table serves both.
        column = np.arange(steps + 1)
        inside = (column >= 1) & (column <= lengths[:, None])
        places = np.where(column == 0, self._begin, self._end) + np.zeros(
            (len(pieces), 1), np.int64
        )
        source = starts[:, None] + column - 1
        places[inside] = self._tokens[source[inside]]
        # nonzero() goes through the table step by step, which is the packed order. A sentence of n
        # words makes n + 1 predictions, hence <=.
        step, row = (np.arange(steps)[:, None] <= lengths[None, :]).nonzero()
        sizes = np.bincount(step, minlength=steps)
        reads = [places[row, step]]
        aims = [places[row, step + 1]]
        if self._directions == 2:
            last = lengths[row] + 1
            reads.append(places[row, last - step])
            aims.append(places[row, last - step - 1])
        # Each word once: the token layer computes a vector per word, not per place.
        types, where = np.unique(np.concatenate(reads), return_inverse=True)
        return LmBatch(
            words=None if self._characters is None else self._characters[types],
            word_ids=None if self._word_ids is None else self._word_ids[types],
            sizes=tuple(sizes.tolist()),
            rows=tuple(np.split(where.reshape(-1), self._directions)),
            targets=tuple(self._targets[aim] for aim in aims),
            total=total,
        )


def _pieces(sentences: Ints, max_length: int) -> tuple[Ints, Ints]:
    """Cut sentences at `max_length`; give where each piece starts and ends. Empty ones vanish."""
    starts, ends = sentences[:-1], sentences[1:]
    counts = -(-(ends - starts) // max_length)  # divided and rounded up
    first = np.repeat(np.cumsum(counts) - counts, counts)
    number = np.arange(counts.sum()) - first
    piece_starts = np.repeat(starts, counts) + number * max_length
    return piece_starts, np.minimum(piece_starts + max_length, np.repeat(ends, counts))

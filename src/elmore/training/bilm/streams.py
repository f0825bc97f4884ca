"""Training batches of running text with carried state: bilm-tf's streams, and long windows.

`make_batches` makes what a recipe asks for, and the held-out batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.corpus.prepared import Prepared, Shard
from elmore.errors import ConfigError
from elmore.text.batching import TokenIndexer
from elmore.text.vocabulary import BEGIN, END, Vocabulary
from elmore.training.bilm.batches import LmBatch, SentenceBatches, Source
from elmore.training.bilm.recipe import Recipe
from elmore.training.seeds import numpy_generator

Ints = NDArray[np.int64]


class StreamBatches:
    """bilm-tf's batches: rows that are always full, sentences that run on from batch to batch.

    Two independent, endless streams of sentences, one of them reversed; the last token of a
    sentence is only ever a target. With several processes each takes its own rows of a wider batch.

    Each process has `rows` rows of `unroll` steps.
    """

    def __init__(self, source: Source, *, rows: int, unroll: int) -> None:
        self._source, self._unroll = source, unroll
        self._mine = slice(source.rank * rows, (source.rank + 1) * rows)
        # Of each direction: sentences to come, how many were taken, and what is left in each row.
        directions = range(source.directions)
        self._sentences = [self._open(d, 0) for d in directions]
        self._taken = [0 for _ in directions]
        self._left: list[list[list[str]]] = [[[]] * (rows * source.world) for _ in directions]

    def _open(self, direction: int, skip: int) -> Iterator[Sequence[str]]:
        """The stream of a direction, which has its own order of shards and sentences."""
        source = self._source
        # Complete epochs and shards are skipped without reading them.
        epoch, skip = divmod(skip, sum(source.sizes))
        while True:
            for place, number in enumerate(source.order("shards", direction, epoch)):
                size = source.sizes[number]
                if skip >= size:
                    skip -= size
                    continue
                shard = source.read(number)
                generator = numpy_generator(source.seed, "sentences", direction, epoch, place)
                yield from map(shard.sentence, generator.permutation(size)[skip:].tolist())
                skip = 0
            epoch += 1

    def next(self) -> LmBatch:
        # All rows are filled, also those of other processes.
        rows = [
            [self._fill(d, row) for row in range(len(left))] for d, left in enumerate(self._left)
        ]
        directions = [tuple(zip(*filled[self._mine], strict=True)) for filled in rows]
        # Never fresh: bilm-tf carries the state across sentences without a reset.
        fresh = np.zeros(len(directions[0][0]), np.bool_)
        return _full_rows(directions, fresh, self._source)

    def _fill(self, direction: int, row: int) -> tuple[list[str], list[str]]:
        """The next words of a row, and the words that follow them."""
        read: list[str] = []
        aim: list[str] = []
        while len(read) < self._unroll:
            left = self._left[direction][row]
            if len(left) <= 1:  # the last token is only ever a target
                left = [BEGIN, *next(self._sentences[direction]), END][:: -1 if direction else 1]
                self._taken[direction] += 1
            n = min(len(left) - 1, self._unroll - len(read))
            read += left[:n]
            aim += left[1 : n + 1]
            self._left[direction][row] = left[n:]
        return read, aim

    def cursor(self) -> dict[str, Any]:
        """The position of both streams, with what is left of every row's sentence."""
        # As words: the sentence may have been read many batches ago.
        pairs = zip(self._taken, self._left, strict=True)
        return {"streams": [{"taken": taken, "left": left} for taken, left in pairs]}

    def restore(self, cursor: Mapping[str, Any]) -> None:
        self._taken = [int(stream["taken"]) for stream in cursor["streams"]]
        self._left = [[list(row) for row in stream["left"]] for stream in cursor["streams"]]
        self._sentences = [self._open(d, taken) for d, taken in enumerate(self._taken)]


def _full_rows(
    directions: Sequence[Sequence[Sequence[Sequence[str]]]],
    fresh: NDArray[np.bool_],
    source: Source,
) -> LmBatch:
    """Pack rows of equal length.

    `directions` has, for each direction, the words that are read and those that follow them, each
    (rows, steps); `fresh` tells which rows start from zeros, (rows,).
    """
    indexer, vocabulary = source.indexer, source.vocabulary
    steps = len(directions[0][0][0]) if len(fresh) else 0
    seen: dict[str, int] = {}
    rows, targets = [], []
    for inputs, aims in directions:
        # Packed order: all rows of a step together.
        words = [row[t] for t in range(steps) for row in inputs]
        rows.append(np.array([seen.setdefault(w, len(seen)) for w in words], np.int64))
        aimed = [row[t] for t in range(steps) for row in aims]
        targets.append(vocabulary.encode(_marked(aimed, vocabulary.markers)))
    distinct = _marked(list(seen), indexer.markers)
    alphabet, table = indexer.alphabet, indexer.vocabulary
    return LmBatch(
        words=None if alphabet is None else alphabet.encode(distinct),
        word_ids=None if table is None else table.encode(distinct),
        sizes=(len(fresh),) * steps,
        rows=tuple(rows),
        targets=tuple(targets),
        total=len(fresh) * steps * source.world,
        fresh=fresh,
    )


def _marked(words: list[str], markers: tuple[str, str]) -> list[str]:
    """Put the markers of an alphabet or vocabulary in the place of the usual ones."""
    if markers == (BEGIN, END):
        return words
    other = dict(zip((BEGIN, END), markers, strict=True))
    return [other.get(word, word) for word in words]


class WindowBatches:
    """Long windows of running text, read a few steps at a time with the state carried on.

    A window starts anywhere in a shard, runs across the borders of sentences and documents
    without markers inside, and is a multiple of `unroll` long: its length is drawn between two
    chunks and `longest`, evenly on a logarithmic scale, so that short and very long windows both
    occur. It begins with zeros and <S> and ends with </S>, as a paragraph does that somebody
    embeds. Both directions read the same windows.

    Each process reads `rows` windows side by side, `unroll` steps in a batch.
    """

    def __init__(self, source: Source, *, rows: int, unroll: int, longest: int) -> None:
        self._source = source
        self._unroll, self._max_chunks = unroll, max(2, longest // unroll)
        self._mine = slice(source.rank * rows, (source.rank + 1) * rows)
        self._epoch = self._shard = self._window = 0
        self._plan: tuple[tuple[int, int], Ints] | None = None
        self._rows = [_Window() for _ in range(rows * source.world)]

    def next(self) -> LmBatch:
        fresh = np.zeros(len(self._rows), np.bool_)
        for k, row in enumerate(self._rows):
            if row.finished(self._unroll):
                self._rows[k] = self._next_window()
                fresh[k] = True
        steps, mine = self._unroll, self._mine
        directions = []
        for turn in (1, -1)[: self._source.directions]:
            # One word more than the steps: the last is only a target.
            texts = [
                row.words[::turn][row.chunk * steps : (row.chunk + 1) * steps + 1]
                for row in self._rows[mine]
            ]
            directions.append(([text[:-1] for text in texts], [text[1:] for text in texts]))
        # Of all processes, so that each knows when the windows of the others end.
        for row in self._rows:
            row.chunk += 1
        return _full_rows(directions, fresh[mine], self._source)

    def cursor(self) -> dict[str, Any]:
        """The position in the data, with the window of every row."""
        return {
            "next": [self._epoch, self._shard, self._window],
            "rows": [[*row.place, row.chunk] if row.place else None for row in self._rows],
        }

    def restore(self, cursor: Mapping[str, Any]) -> None:
        self._epoch, self._shard, self._window = map(int, cursor["next"])
        rows = cursor["rows"]
        self._rows = [
            _Window() if row is None else self._open(tuple(row[:3]), row[3]) for row in rows
        ]

    def _next_window(self) -> _Window:
        # There is one start more than there are windows: the end of the last one.
        while self._window + 1 >= len(self._starts(self._epoch, self._shard)):
            self._shard, self._window = self._shard + 1, 0
            if self._shard >= len(self._source.sizes):
                self._epoch, self._shard = self._epoch + 1, 0
        place = (self._epoch, self._shard, self._window)
        self._window += 1
        return self._open(place, 0)

    def _open(self, place: tuple[int, int, int], chunk: int) -> _Window:
        epoch, shard, number = place
        starts = self._starts(epoch, shard)
        found = self._source.read(self._source.order("window shards", epoch)[shard])
        # The last word before the next window is left out: </S> takes its place.
        where = np.arange(starts[number], starts[number + 1] - 1) % found.n_tokens
        words = [found.types[t] for t in found.tokens[where].tolist()]
        return _Window([BEGIN, *words, END], place, chunk)

    def _starts(self, epoch: int, shard: int) -> Ints:
        """Where the windows of a shard start, and where the last one ends; empty if too short.

        Places count from a word that each epoch draws again, and wrap around at the end.
        """
        if self._plan is None or self._plan[0] != (epoch, shard):
            number = self._source.order("window shards", epoch)[shard]
            n_tokens = self._source.read(number).n_tokens
            generator = numpy_generator(self._source.seed, "windows", epoch, shard)
            begin = int(generator.integers(max(1, n_tokens)))
            most = n_tokens // self._unroll
            # Evenly on a logarithmic scale: short and very long windows both occur.
            drawn = generator.uniform(np.log(2), np.log(self._max_chunks + 1), max(1, most // 2))
            ends = np.cumsum(np.exp(drawn).astype(np.int64))
            chunks = np.concatenate([[0], ends[ends <= most]])
            if len(chunks) == 1 and most >= 2:
                chunks = np.array([0, most])  # a small corpus is one window
            self._plan = ((epoch, shard), begin + chunks * self._unroll)
        return self._plan[1]


@dataclass
class _Window:
    """What one row reads: words with markers, where they are from, and the next chunk."""

    words: list[str] = field(default_factory=list)
    place: tuple[int, ...] = ()
    chunk: int = 0

    def finished(self, unroll: int) -> bool:
        return self.chunk * unroll + 1 >= len(self.words)


class SentenceAndWindowBatches:
    """Batches of sentences, and between them batches of long windows: a share of all tokens."""

    def __init__(self, sentences: SentenceBatches, windows: WindowBatches, share: float) -> None:
        self._sentences, self._windows, self._share = sentences, windows, share
        self._seen = self._long = 0

    def next(self) -> LmBatch:
        source: SentenceBatches | WindowBatches = self._sentences
        # By tokens, not by chance: the share holds at any time, and a resume repeats it.
        if self._long < self._share * self._seen:
            source = self._windows
        batch = source.next()
        self._seen += batch.total
        if source is self._windows:
            self._long += batch.total
        return batch

    def cursor(self) -> dict[str, Any]:
        """The positions of both kinds."""
        return {
            "sentences": self._sentences.cursor(),
            "windows": self._windows.cursor(),
            "seen": self._seen,
            "long": self._long,
        }

    def restore(self, cursor: Mapping[str, Any]) -> None:
        self._sentences.restore(cursor["sentences"])
        self._windows.restore(cursor["windows"])
        self._seen, self._long = int(cursor["seen"]), int(cursor["long"])


def make_batches(
    prepared: Prepared,
    recipe: Recipe,
    indexer: TokenIndexer,
    vocabulary: Vocabulary,
    *,
    seed: int = 0,
    rank: int = 0,
    world: int = 1,
) -> SentenceBatches | StreamBatches | SentenceAndWindowBatches:
    """The training batches of one of `world` processes."""

    @lru_cache(maxsize=4)  # sentences and windows read shards in orders of their own
    def read(number: int) -> Shard:
        return prepared.read(prepared.shard_paths[number])

    data = recipe.data
    source = Source(
        read=read,
        sizes=[size.sentences for size in prepared.shards],
        indexer=indexer,
        vocabulary=vocabulary,
        seed=seed,
        directions=2 if recipe.model.bidirectional else 1,
        rank=rank,
        world=world,
    )
    if data.regime == "stream":
        return StreamBatches(source, rows=data.batch_rows, unroll=data.unroll)
    if data.batch_tokens < world:
        raise ConfigError(f"data.batch_tokens={data.batch_tokens} for {world} processes; raise it")
    single = SentenceBatches(
        source,
        batch_tokens=data.batch_tokens,
        max_length=data.max_length,
        pool=data.pool_sentences,
    )
    # A few sentences hold no long window.
    if not data.long_share or max(size.tokens for size in prepared.shards) < 2 * data.unroll:
        return single
    windows = WindowBatches(
        source, rows=data.batch_rows, unroll=data.unroll, longest=data.long_tokens
    )
    return SentenceAndWindowBatches(single, windows, data.long_share)


def heldout_batches(
    prepared: Prepared, recipe: Recipe, indexer: TokenIndexer, vocabulary: Vocabulary
) -> list[LmBatch]:
    """Take a fixed sample of the held-out sentences; the same in every run."""
    if prepared.heldout_path is None:
        return []
    shard = prepared.read(prepared.heldout_path)
    source = Source(
        read=lambda number: shard,
        sizes=[shard.n_sentences],
        indexer=indexer,
        vocabulary=vocabulary,
        seed=0,  # whatever the run's own, so that runs can be compared
        directions=2 if recipe.model.bidirectional else 1,
    )
    # One pool: sorted batches waste the fewest steps. They are shuffled, so a few have all lengths.
    batches = SentenceBatches(
        source, batch_tokens=2048, max_length=recipe.data.max_length, pool=len(shard.sentences)
    )
    taken: list[LmBatch] = []
    while sum(batch.n_tokens for batch in taken) < recipe.run.heldout_tokens:
        batch = batches.next()
        if batches.cursor()["epoch"]:
            break
        taken.append(batch)
    return taken

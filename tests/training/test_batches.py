"""Batches of sentences, long windows and bilm-tf's streams: what is in them, and resuming."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import GOLDEN
from small_training import WORDS, batch_arrays, characters, make_sentences, source_of
from tf_bundle import toy_corpus

from elmore.text.batching import TokenIndexer
from elmore.text.vocabulary import Vocabulary
from elmore.training.bilm.batches import LmBatch, SentenceBatches
from elmore.training.bilm.streams import SentenceAndWindowBatches, StreamBatches, WindowBatches

VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", *WORDS[:9]])
Sentences = Sequence[Sequence[str]]


SHARDS = [make_sentences(n, seed=n) for n in (30, 7, 18)]


def sentence_batches(
    shards: Sequence[Sentences] = SHARDS,
    *,
    words: bool = True,
    batch_tokens: int = 40,
    max_length: int = 12,
    **options: Any,
) -> SentenceBatches:
    source = source_of(shards, VOCABULARY, words=words, **{"seed": 3, **options})
    return SentenceBatches(source, batch_tokens=batch_tokens, max_length=max_length, pool=16)


def pieces_of(sentences: Sentences, most: int) -> list[tuple[str, ...]]:
    return [
        tuple(tokens[k : k + most]) for tokens in sentences for k in range(0, len(tokens), most)
    ]


def unpacked(batch: LmBatch, values: np.ndarray) -> list[list[Any]]:
    """Packed rows -> one list for each sequence."""
    rows: list[list[Any]] = [[] for _ in range(max(batch.sizes, default=0))]
    at = 0
    for size in batch.sizes:
        for row in range(size):
            rows[row].append(values[at])
            at += 1
    assert at == len(values)
    return rows


def epoch(batches: SentenceBatches) -> list[LmBatch]:
    """All batches of the present epoch."""
    place, taken = batches.cursor(), []
    number = place["epoch"]
    while True:
        batch = batches.next()
        if batches.cursor()["epoch"] != number:
            return taken
        taken.append(batch)


# Sentences ------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("both", [True, False])
def test_an_epoch_holds_every_piece_once_and_right(words: bool, both: bool) -> None:
    batches = sentence_batches(words=words, directions=2 if both else 1)
    # Words of the vocabulary only differ in their ids; with characters, in their letters.
    ids = {tuple(row): k for k, row in enumerate(characters().alphabet.encode(["<S>", "</S>"]))}
    assert len(ids) == 2
    seen: Counter[tuple[int, ...]] = Counter()
    for batch in epoch(batches):
        table = batch.word_ids if words else batch.words
        assert len(np.unique(table, axis=0)) >= len(table) - (0 if not words else len(WORDS))
        reads = unpacked(batch, table[batch.rows[0]])
        aims = unpacked(batch, batch.targets[0])
        assert list(map(len, reads)) == sorted(map(len, reads), reverse=True)
        for row, (read, aim) in enumerate(zip(reads, aims, strict=True)):
            # forward: <S> w1 … wn reads, w1 … wn </S> is to be said
            whole = [0, *aim]
            assert whole[-1] == 1
            seen[tuple(whole[1:-1])] += 1
            if words:
                assert [int(word) for word in read] == whole[:-1]
            else:
                texts = [bytes(int(c) - 1 for c in word if c <= 256).decode() for word in read]
                assert texts[0] == ""
                assert VOCABULARY.encode(texts[1:]).tolist() == whole[1:-1]
            if both:
                back_read = unpacked(batch, table[batch.rows[1]])[row]
                back_aim = unpacked(batch, batch.targets[1])[row]
                assert back_aim == [*whole[1:-1][::-1], 0]
                if words:
                    assert [int(word) for word in back_read] == [1, *whole[1:-1][::-1]]
                else:
                    np.testing.assert_array_equal(back_read[1:], read[:0:-1])
                    np.testing.assert_array_equal(
                        back_read[0], characters().alphabet.encode(["</S>"])[0]
                    )
        assert len(batch.rows) == (2 if both else 1)
    expected = Counter(
        tuple(VOCABULARY.encode(piece).tolist())
        for shard in SHARDS
        for piece in pieces_of(shard, 12)
    )
    assert seen == expected


@pytest.mark.parametrize("budget", [13, 40, 10_000])
def test_a_batch_keeps_its_budget_and_its_pool(budget: int) -> None:
    batches = sentence_batches(batch_tokens=budget)
    sizes = []
    for batch in epoch(batches):
        assert batch.n_tokens <= budget
        assert batch.n_tokens == sum(batch.sizes)
        assert list(batch.sizes) == sorted(batch.sizes, reverse=True)
        sizes.append(batch.sizes[0])
    assert max(sizes) <= 16
    assert (budget < 10_000) or max(sizes) == 16


def test_a_sentence_longer_than_the_budget_stands_alone() -> None:
    batches = sentence_batches([[["wa"] * 30, ["wb"]]], max_length=50, batch_tokens=10)
    assert sorted(batch.sizes for batch in epoch(batches)) == [(1,) * 2, (1,) * 31]


def test_words_outside_the_vocabulary_are_read_but_not_said() -> None:
    batch = sentence_batches([[["wa", "wz"]]], words=False).next()
    assert batch.targets[0].tolist() == [3, 2, 1]
    read = [bytes(int(c) - 1 for c in row if c <= 256).decode() for row in batch.words]
    assert "wz" in read


def test_epochs_and_seeds_differ_in_order_alone() -> None:
    def order(batches: SentenceBatches) -> list[Any]:
        return [batch_arrays(batch) for batch in epoch(batches)]

    batches = sentence_batches()
    first = order(batches)
    batches.restore({"epoch": 1, "shard": 0, "batch": 0})
    second = order(batches)
    assert first == order(sentence_batches())
    assert first != second
    assert first != order(sentence_batches(seed=4))
    assert sum(len(b[-1]) for b in first) == sum(len(b[-1]) for b in second)


# bilm-tf's streams ----------------------------------------------------------------------------


class InOrder(StreamBatches):
    """The stream of a dataset that is not shuffled."""

    def _open(self, direction: int, skip: int) -> Iterator[Sequence[str]]:
        shard = self._source.read(0)
        for k in itertools.count(skip):
            yield shard.sentence(k % shard.n_sentences)


def matrix(batch: LmBatch, values: np.ndarray) -> list[Any]:
    """Packed order -> (rows, steps, …)."""
    steps = len(batch.sizes)
    return values.reshape(steps, -1, *values.shape[1:]).swapaxes(0, 1).tolist()


def test_golden_batches_of_bilm_tf() -> None:
    """The toy corpus in its order: one file, not shuffled, both directions."""
    vocabulary = Vocabulary.read(GOLDEN / "bilm-tf/train/vocab.txt")
    with h5py.File(GOLDEN / "bilm-tf/checkpoint/train_golden.hdf5") as file:
        fed = [{n: np.asarray(a) for n, a in file[f"batch/{k}"].items()} for k in range(6)]
    source = source_of([toy_corpus()], vocabulary)
    both = TokenIndexer(characters(10).alphabet, vocabulary)
    batches = InOrder(dataclasses.replace(source, indexer=both), rows=2, unroll=5)
    for arrays in fed:
        batch = batches.next()
        assert batch.total == 10
        for d, suffix in enumerate(("", "_reverse")):
            found = matrix(batch, batch.targets[d])
            assert found == arrays[f"next_token_id{suffix}"].tolist()
            letters = matrix(batch, batch.words[batch.rows[d]] - 1)
            assert letters == arrays[f"tokens_characters{suffix}"].tolist()
            read = matrix(batch, batch.word_ids[batch.rows[d]])
            # After the end of a sentence, which is only a target, the next one is read.
            begin = {0: 1, 1: 0}
            assert [row[1:] for row in read] == [
                [begin.get(w, w) for w in row[:-1]] for row in found
            ]


def stream_batches(*, rows: int = 3, unroll: int = 7, **options: Any) -> StreamBatches:
    return StreamBatches(source_of(SHARDS, VOCABULARY, **options), rows=rows, unroll=unroll)


def test_endless_streams_hold_every_sentence_once_an_epoch() -> None:
    stream = stream_batches()._open
    expected = Counter(tuple(tokens) for shard in SHARDS for tokens in shard)
    count = sum(map(len, SHARDS))
    orders = []
    for direction in range(2):
        sentences = stream(direction, 0)
        for _ in range(2):
            order = [tuple(next(sentences)) for _ in range(count)]
            assert Counter(order) == expected
            orders.append(order)
    assert len(set(map(tuple, orders))) == 4  # each direction and epoch has its own
    later = stream(1, count + 11)
    assert [tuple(next(later)) for _ in range(20)] == orders[3][11:31]


# Long windows ---------------------------------------------------------------------------------

# Every token of the corpus is a word of its own, so a word tells where it is from.
SIZES = (150, 40, 230)


def numbered_shards(sizes: Sequence[int] = SIZES) -> list[Sentences]:
    """Shards of sentences of 1 to 9 words; word k of shard s is "s:k"."""
    shards = []
    for number, size in enumerate(sizes):
        words = [f"{number}:{k}" for k in range(size)]
        cuts = np.cumsum(np.random.default_rng(number).integers(1, 10, size))
        bounds = [0, *(int(cut) for cut in cuts if cut < size), size]
        shards.append([words[a:b] for a, b in itertools.pairwise(bounds)])
    return shards


NUMBERED = Vocabulary(
    ["<S>", "</S>", "<UNK>", *(f"{s}:{k}" for s, size in enumerate(SIZES) for k in range(size))]
)


def window_batches(sizes: Sequence[int] = SIZES, *, rows: int = 4, **options: Any) -> WindowBatches:
    source = source_of(numbered_shards(sizes), NUMBERED, **{"seed": 5, **options})
    return WindowBatches(source, rows=rows, unroll=6, longest=48)


def read_windows(batches: WindowBatches, count: int) -> tuple[list[list[str]], list[list[str]]]:
    """Read so many batches; give all windows that ended, as each direction read them.

    The word that a window's last step predicts is its last one.
    """
    finished: tuple[list[list[str]], list[list[str]]] = ([], [])
    open_rows: list[list[list[str]]] = [[], []]
    for _ in range(count):
        batch = batches.next()
        assert len(set(batch.sizes)) == 1  # full rows
        for d in range(len(batch.rows)):
            reads = matrix(batch, batch.word_ids[batch.rows[d]])
            aims = matrix(batch, batch.targets[d])
            open_rows[d] = open_rows[d] or [[] for _ in reads]
            for k, (read, aim) in enumerate(zip(reads, aims, strict=True)):
                assert read[1:] == aim[:-1]
                if batch.fresh[k]:
                    if open_rows[d][k]:
                        finished[d].append(open_rows[d][k])
                    open_rows[d][k] = [NUMBERED.words[read[0]]]
                else:  # the state is carried: this batch continues where the last one ended
                    assert open_rows[d][k][-1] == NUMBERED.words[read[0]]
                open_rows[d][k] += [NUMBERED.words[word] for word in aim]
    return finished


def test_a_window_is_running_text_with_markers_at_its_ends_only() -> None:
    batches = window_batches()
    assert window_batches().next().total == 4 * 6
    forward, _ = read_windows(batches, 200)
    lengths = set()
    for window in forward:
        assert (window[0], window[-1]) == ("<S>", "</S>")
        words = [tuple(map(int, word.split(":"))) for word in window[1:-1]]
        shard, first = words[0]
        # One after the other, across sentence borders, and on from the start at the shard's end.
        assert words == [(shard, (first + k) % SIZES[shard]) for k in range(len(words))]
        assert (len(window) - 1) % 6 == 0
        assert 2 * 6 <= len(window) - 1 <= 48
        lengths.add(len(window) - 1)
    assert {12, 48} <= lengths  # short and long ones


def test_both_directions_read_the_same_windows() -> None:
    forward, backward = read_windows(window_batches(), 100)
    assert len(forward) > 20
    assert [window[::-1] for window in backward] == forward
    only, none = read_windows(window_batches(directions=1), 100)
    assert only == forward
    assert none == []


def test_windows_of_an_epoch_do_not_overlap_and_epochs_differ() -> None:
    batches = window_batches()
    forward, _ = read_windows(batches, 400)
    # Every epoch begins elsewhere and draws other lengths.
    assert len(set(map(tuple, forward))) > 0.8 * len(forward)
    words = Counter(word for window in forward for word in window[1:-1])
    epochs = batches.cursor()["next"][0] + 1
    assert 0.8 * epochs < sum(words.values()) / sum(SIZES) < epochs
    assert max(words.values()) <= epochs


@pytest.mark.parametrize("sizes", [(12,), (13,), (5, 12, 7)])
def test_a_tiny_corpus_is_one_window(sizes: tuple[int, ...]) -> None:
    batches = window_batches(sizes, rows=2)
    forward, _ = read_windows(batches, 12)
    assert {len(window) - 1 for window in forward} == {12}
    # Two rows are still open; no epoch passes without a window.
    assert len(forward) + 2 == 12 == batches.cursor()["next"][0] + 1


def same_batches(one: LmBatch, other: LmBatch) -> bool:
    assert (one.fresh is None) == (other.fresh is None)
    assert one.total == other.total
    fresh = one.fresh is None or one.fresh.tolist() == other.fresh.tolist()
    return fresh and batch_arrays(one) == batch_arrays(other)


# Sentences and windows mixed ------------------------------------------------------------------


def both_batches(share: float, **options: Any) -> SentenceAndWindowBatches:
    sentences = sentence_batches(numbered_shards(), **options)
    return SentenceAndWindowBatches(sentences, window_batches(**options), share)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.9, 1.0])
def test_the_share_of_tokens_in_windows(share: float) -> None:
    batches, tokens = both_batches(share), [0, 0]
    for _ in range(300):
        batch = batches.next()
        assert batch.n_tokens == batch.total
        tokens[batch.fresh is not None] += batch.n_tokens
    assert tokens[1] / sum(tokens) == pytest.approx(share, abs=0.01)


# Resuming ---------------------------------------------------------------------------------------

KINDS = {
    "sentences": sentence_batches,
    "stream": stream_batches,
    "windows": window_batches,
    "mixed": lambda **options: both_batches(0.3, **options),
}


@settings(max_examples=60)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 120), st.sampled_from([1, 2]))
def test_batches_resume_from_anywhere(kind: str, skip: int, world: int) -> None:
    options = {"rank": world - 1, "world": world}
    whole, other = KINDS[kind](**options), KINDS[kind](**options)
    for _ in range(skip):
        whole.next()
    other.restore(json.loads(json.dumps(whole.cursor())))
    for _ in range(12):
        assert same_batches(whole.next(), other.next())
        assert whole.cursor() == other.cursor()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_processes_share_every_batch(kind: str) -> None:
    # Sentences are cut by the batch; rows of running text are those of all processes.
    rows = {} if kind in ("sentences", "mixed") else {"rows": 4}
    mine = {name: count // 2 for name, count in rows.items()}
    whole = KINDS[kind](**rows)
    parts = [KINDS[kind](rank=rank, world=2, **mine) for rank in range(2)]
    if kind == "mixed":
        whole._windows = window_batches(rows=8)
    for _ in range(25):
        batch, shares = whole.next(), [part.next() for part in parts]
        assert {share.total for share in shares} == {batch.n_tokens}
        assert sum(share.n_tokens for share in shares) == batch.n_tokens
        for d in range(2):
            together = [tuple(r) for s in shares for r in unpacked(s, s.targets[d])]
            assert sorted(together) == sorted(map(tuple, unpacked(batch, batch.targets[d])))
        assert whole.cursor() == parts[0].cursor() == parts[1].cursor()

"""Sentences in batches."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmore.text.batching import TokenIndexer, plan_batches
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary

token = st.text(max_size=4) | st.sampled_from(["the", "a", "<S>", "</S>", "<UNK>"])
sentences = st.lists(st.lists(token, max_size=6), max_size=8)


@given(st.lists(st.integers(0, 60), max_size=80), st.integers(1, 300))
def test_the_plan(lengths: list[int], batch_tokens: int) -> None:
    plan = plan_batches(lengths, batch_tokens=batch_tokens)
    order = [int(k) for batch in plan for k in batch]
    assert sorted(order) == list(range(len(lengths)))  # every sentence once
    # Longest first; equally long ones in the order of the input.
    assert order == sorted(range(len(lengths)), key=lambda k: -lengths[k])
    for batch in plan:
        size = len(batch) * (max(lengths[k] for k in batch) + 2)
        assert size <= batch_tokens or len(batch) == 1
    for batch, following in itertools.pairwise(plan):  # no room was left unused
        assert (len(batch) + 1) * (lengths[batch[0]] + 2) > batch_tokens
        assert len(following)


@given(sentences)
def test_every_token_is_found_again(rows: list[list[str]]) -> None:
    alphabet = ByteAlphabet()
    batch = TokenIndexer(alphabet).batch(rows)
    assert batch.word_ids is None
    assert batch.words is not None
    distinct = {"<S>", "</S>", *(token for tokens in rows for token in tokens)}
    assert len(batch.words) == len(distinct)  # each distinct word once
    assert batch.lengths.tolist() == [len(tokens) + 2 for tokens in rows]
    assert batch.positions.tolist() == list(range(len(rows)))
    for row, tokens in enumerate(rows):
        ids = batch.words[batch.index[row, : batch.lengths[row]]]
        np.testing.assert_array_equal(ids, alphabet.encode(["<S>", *tokens, "</S>"]))
        assert (batch.index[row, batch.lengths[row] :] == 0).all()


@given(sentences)
def test_rows_of_a_word_table(rows: list[list[str]]) -> None:
    vocabulary = Vocabulary(["the", "</S>", "<UNK>", "<S>"])
    batch = TokenIndexer(None, vocabulary).batch(rows)
    assert batch.words is None
    assert batch.word_ids is not None
    for row, tokens in enumerate(rows):
        ids = batch.word_ids[batch.index[row, : batch.lengths[row]]]
        np.testing.assert_array_equal(ids, vocabulary.encode(["<S>", *tokens, "</S>"]))


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=6), min_size=2, max_size=8))
def test_some_sentences_have_just_their_words(rows: list[list[str]]) -> None:
    indexer = TokenIndexer(ByteAlphabet())
    whole = indexer.batch(rows)
    chosen = np.arange(len(rows))[::2]
    part, used = whole.some(chosen)
    alone = indexer.batch([rows[k] for k in chosen])
    assert part.words is not None
    assert whole.words is not None
    assert alone.words is not None
    assert part.positions.tolist() == chosen.tolist()
    assert part.lengths.tolist() == alone.lengths.tolist()
    np.testing.assert_array_equal(part.words, whole.words[used])
    for row, length in enumerate(part.lengths):
        ours = part.words[part.index[row, :length]]
        np.testing.assert_array_equal(ours, alone.words[alone.index[row, :length]])
    inside = {
        tuple(word)
        for row, n in enumerate(part.lengths)
        for word in part.words[part.index[row, :n]]
    }
    assert len(part.words) - len(inside) in (0, 1)  # word 0 stands where nothing stands

"""Sentences in batches: which go together, and the arrays that a biLM reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmore.errors import ConfigError
from elmore.text.characters import PADDING, Alphabet, DictionaryAlphabet
from elmore.text.vocabulary import BEGIN, END, Vocabulary


@dataclass(frozen=True, slots=True)
class Batch:
    """Sentences as arrays; each distinct word occurs once.

    Attributes:
        words: distinct words as character ids, (n_words, chars), or None without characters.
        word_ids: distinct words as rows of the word table, (n_words,), or None without one.
        index: which word is where, markers included, (batch, time); 0 at padding.
        lengths: tokens of each sentence with its two markers, (batch,).
        positions: where each sentence stood in the input, (batch,).
    """

    words: NDArray[np.int32] | None
    word_ids: NDArray[np.int64] | None
    index: NDArray[np.int64]
    lengths: NDArray[np.int64]
    positions: NDArray[np.int64]

    def some(self, rows: NDArray[np.int64]) -> tuple[Batch, NDArray[np.int64]]:
        """Some rows, (n,), as a batch with just their words, and the places of these words here."""
        lengths = self.lengths[rows]
        index = self.index[rows, : int(lengths.max(initial=0))]
        # Padding has the number of the opening marker, which every sentence has anyway.
        used, places = np.unique(index, return_inverse=True)
        part = Batch(
            words=None if self.words is None else self.words[used],
            word_ids=None if self.word_ids is None else self.word_ids[used],
            index=places.reshape(index.shape).astype(np.int64, copy=False),
            lengths=lengths,
            positions=self.positions[rows],
        )
        return part, used


class TokenIndexer:
    """Turns token lists into a `Batch`.

    Args:
        alphabet: characters of a token, or None if the model reads words alone.
        vocabulary: rows of the model's word table, or None if it reads characters alone.
    """

    def __init__(self, alphabet: Alphabet | None, vocabulary: Vocabulary | None = None) -> None:
        self.alphabet = alphabet
        self.vocabulary = vocabulary
        reader = vocabulary if alphabet is None else alphabet
        self.markers = (BEGIN, END) if reader is None else reader.markers

    def batch(
        self, sentences: Sequence[Sequence[str]], positions: Sequence[int] | None = None
    ) -> Batch:
        """Index the words of some sentences, each between its two markers.

        `positions` are where they stood in the input; 0, 1, … if not given.
        """
        begin, end = self.markers
        # The markers come first, so that their places are known before any word is seen.
        seen: dict[str, int] = {begin: 0, end: 1}
        lengths = np.fromiter((len(tokens) + 2 for tokens in sentences), np.int64, len(sentences))
        index = np.zeros((len(sentences), int(lengths.max(initial=0))), np.int64)
        for row, tokens in enumerate(sentences):
            index[row, 1 : len(tokens) + 1] = [
                seen.setdefault(token, len(seen)) for token in tokens
            ]
            index[row, len(tokens) + 1] = 1
        words = list(seen)
        where = range(len(sentences)) if positions is None else positions
        return Batch(
            words=None if self.alphabet is None else self.alphabet.encode(words),
            word_ids=None if self.vocabulary is None else self.vocabulary.encode(words),
            index=index,
            lengths=lengths,
            positions=np.asarray(where, np.int64),
        )


def with_padding_as_words(batch: Batch, indexer: TokenIndexer) -> Batch:
    """Make all sentences equally long by words of nothing but padding.

    ELMoForManyLangs' `lstm` encoder reads a batch in this way; no other model should.

    Args:
        batch: sentences of different lengths.
        indexer: what made the batch; its alphabet and vocabulary have an entry `<pad>`.
    """
    words, word_ids = batch.words, batch.word_ids
    n_words = len(words if words is not None else word_ids if word_ids is not None else ())
    if words is not None and isinstance(indexer.alphabet, DictionaryAlphabet):
        row = np.full((1, words.shape[1]), indexer.alphabet.padding, words.dtype)
        words = np.concatenate([words, row])
    if word_ids is not None and indexer.vocabulary is not None:
        row_id = indexer.vocabulary.encode([PADDING])
        word_ids = np.concatenate([word_ids, row_id])
    time = batch.index.shape[1]
    outside = np.arange(time)[None, :] >= batch.lengths[:, None]
    return Batch(
        words=words,
        word_ids=word_ids,
        index=np.where(outside, n_words, batch.index),
        lengths=np.full_like(batch.lengths, time),
        positions=batch.positions,
    )


def plan_batches(
    lengths: Sequence[int] | NDArray[np.int64], *, batch_tokens: int
) -> list[NDArray[np.int64]]:
    """Cut sentences into batches of nearly equal length.

    Longest first, so that the largest need for memory shows at once; ties keep the order of the
    input, so that the plan depends on the lengths alone.

    Args:
        lengths: tokens of each sentence, (n_sentences,).
        batch_tokens: how many tokens (rows times the longest row, with markers) a batch may
            hold; a single longer sentence gets a batch of its own.

    Returns:
        positions of the sentences of each batch.
    """
    if batch_tokens < 1:
        raise ConfigError(f"batch_tokens={batch_tokens} holds no token; use 1 or more")
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    batches: list[NDArray[np.int64]] = []
    start = 0
    while start < len(order):
        longest = int(lengths[order[start]]) + 2
        rows = max(1, batch_tokens // longest)
        batches.append(order[start : start + rows])
        start += rows
    return batches

"""Sentence vectors for similarity: smooth inverse frequency (Arora et al. 2017).

A sentence's vector is the weighted mean of its words' token-layer vectors. A word that makes up the
share p of running text weighs a / (a + p), so that "the" counts for little. Before that the vectors
are centred, decorrelated and scaled to length 1 (whitening; it removes what all sentences have in
common, as the paper does with its first component).

Everything comes from the model itself: p from the rank of a word in the vocabulary by Zipf's law,
mean and covariance from the token layer of the most frequent words. So a sentence's vector depends
on that sentence alone, and no text is needed. The LSTMs are not run: for similarity of sentences
the token layer is better than the layers above it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elmore.embedding.engine import Engine
from elmore.embedding.results import Array, finite, unit
from elmore.errors import ConfigError
from elmore.formats.checkpoint import Whitening
from elmore.text.tokenizer import Sentence

# The constant a of the paper; SNLI retrieval changed by less than a point from 1e-4 to 1e-3.
_SMOOTHING = 1e-3
# Words whose token layer gives mean and covariance; they cover some 95 % of English text.
N_WORDS = 10_000
# Directions with less variance than this share of the largest are noise, and are not blown up.
_SMALLEST = 1e-4


class Sif:
    """The `Finish` of `pool="sif"`; it takes the token layer alone.

    Raises:
        ConfigError: the model has no vocabulary, or too small a one.
    """

    def __init__(self, engine: Engine) -> None:
        vocabulary = engine.checkpoint.vocabulary
        if vocabulary is None or len(vocabulary) < 4:
            raise ConfigError(
                "pool='sif' needs the model's vocabulary, in the order of frequency, and this "
                "model has none; use pool='mean', or load (options, weights, vocabulary)"
            )
        if engine.whitening is None:  # made once for each model in memory
            ranked = enumerate(vocabulary.words[:N_WORDS])
            words = {rank: word for rank, word in ranked if (word[0], word[-1]) != ("<", ">")}
            vectors = engine.token_vectors(list(words.values()))
            engine.whitening = _whitening(vectors, np.array(list(words)))
        self._vocabulary, self._whitening = vocabulary, engine.whitening
        self._harmonic = float((1 / np.arange(1, len(vocabulary) + 1)).sum())

    def __call__(self, sentence: Sentence, values: Array, /) -> Array:
        """Pool (layers, time, dim), of which the token layer of one direction counts."""
        mean, matrix = self._whitening
        vectors = unit((values[0][:, : len(mean)] - mean) @ matrix)
        ranks = [self._rank(token) for token in sentence.tokens]
        shares = 1 / (np.array(ranks, np.float64) + 1) / self._harmonic
        total = (_SMOOTHING / (_SMOOTHING + shares)) @ vectors
        result = np.asarray(total / max(len(sentence), 1), np.float32)
        return finite(sentence.tokens, result)

    def _rank(self, token: str) -> int:
        found = self._vocabulary.find(token)
        if found is None:
            found = self._vocabulary.find(token.lower())
        return len(self._vocabulary) if found is None else found


def _whitening(vectors: Array, ranks: NDArray[np.int64]) -> Whitening:
    """The mean of words, and what decorrelates them.

    Args:
        vectors: token layer of words, (n, dim).
        ranks: of these words in the vocabulary, from 0, (n,).
    """
    shares = 1 / (ranks + 1)
    shares = shares / shares.sum()
    weights = _SMOOTHING / (_SMOOTHING + shares)
    mean = (shares * weights) @ vectors / (shares @ weights)
    # How words vary inside weighted sums: the square of a weight times how often it is used.
    often = shares * weights**2
    centred = (vectors - mean).astype(np.float64)
    values, directions = np.linalg.eigh((centred * (often / often.sum())[:, None]).T @ centred)
    values = np.maximum(values, _SMALLEST * values.max())
    return Whitening(
        np.asarray(mean, np.float32), np.asarray(directions / np.sqrt(values), np.float32)
    )

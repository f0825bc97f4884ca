"""From all layers of a sentence to what a caller asked for, in one piece or piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmore.embedding.layers import LayerChoice, SentenceLayers, layer_weights
from elmore.embedding.pooling import Pooling, check_pooling, pool
from elmore.text.sentence import Sentence

__all__ = ["AllLayers", "Finish", "Mixed", "Pooled", "PooledLayers", "choose_finish"]

Array = NDArray[np.float32]
Result = TypeVar("Result", covariant=True)


class Finish(Protocol[Result]):
    """Makes the result of a sentence; the arrays it is given must not be kept."""

    def whole(self, sentence: Sentence, values: Array) -> Result:
        """Finish a sentence from all its layers, (layers, time, dim)."""

    def pieces(self, sentence: Sentence, pieces: Iterator[Array]) -> Result:
        """Finish a long sentence from stretches of it in order, each (layers, some, dim).

        Args:
            sentence: of one token at least.
            pieces: made when they are asked for; no two need be held at once.
        """


class Mixed:
    """One vector for each token, (time, dim).

    Args:
        layers: the choice of layers.
        n_layers: how many the model has.
    """

    def __init__(self, layers: LayerChoice, n_layers: int) -> None:
        weights = layer_weights(layers, n_layers).tolist()
        self._terms: list[tuple[int, float]] = [
            (layer, weight) for layer, weight in enumerate(weights) if weight
        ]

    def whole(self, sentence: Sentence, values: Array) -> Array:
        """Mix, layer by layer: elements in a fixed order, whatever stands beside them."""
        if not self._terms:
            return np.zeros(values.shape[1:], np.float32)
        (layer, weight), *others = self._terms
        mixed: Array = values[layer] * np.float32(weight)
        for layer, weight in others:
            mixed += values[layer] * np.float32(weight)
        return mixed

    def pieces(self, sentence: Sentence, pieces: Iterator[Array]) -> Array:
        """Mix piece by piece."""
        result: Array | None = None
        start = 0
        for values in pieces:
            part = self.whole(sentence, values)
            if result is None:
                result = np.empty((len(sentence), part.shape[1]), np.float32)
            result[start : start + len(part)] = part
            start += len(part)
        return np.zeros((0, 0), np.float32) if result is None else result


class AllLayers:
    """All layers with the tokens."""

    def whole(self, sentence: Sentence, values: Array) -> SentenceLayers:
        """Copy them."""
        return SentenceLayers(sentence.tokens, sentence.spans, values.copy())

    def pieces(self, sentence: Sentence, pieces: Iterator[Array]) -> SentenceLayers:
        """Copy them piece by piece."""
        result: Array | None = None
        start = 0
        for values in pieces:
            layers, size, dim = values.shape
            if result is None:
                result = np.empty((layers, len(sentence), dim), np.float32)
            result[:, start : start + size] = values
            start += size
        whole = np.zeros((0, 0, 0), np.float32) if result is None else result
        return SentenceLayers(sentence.tokens, sentence.spans, whole)


class _Pooling:
    """Pools what a mix, or nothing, makes of the layers."""

    def __init__(self, kind: Pooling) -> None:
        check_pooling(kind)
        self._kind: Pooling = kind

    def _vectors(self, sentence: Sentence, values: Array) -> Array:
        raise NotImplementedError

    def whole(self, sentence: Sentence, values: Array) -> Array:
        """Pool."""
        return pool(self._vectors(sentence, values), self._kind)

    def pieces(self, sentence: Sentence, pieces: Iterator[Array]) -> Array:
        """Pool piece by piece; sums are in float64, a long sentence has many terms."""
        result: NDArray[np.float32] | NDArray[np.float64] | None = None
        for values in pieces:
            vectors = self._vectors(sentence, values)
            if self._kind == "mean":
                part: NDArray[np.float64] | Array = vectors.sum(axis=-2, dtype=np.float64)
                result = part if result is None else result + part
            elif self._kind == "max":
                part = vectors.max(axis=-2)
                result = part if result is None else np.maximum(result, part)
            elif self._kind == "last" or result is None:
                result = pool(vectors, self._kind)
        if result is None:
            return np.zeros(0, np.float32)
        if self._kind == "mean":
            result = result / len(sentence)
        return np.asarray(result, np.float32)


class Pooled(_Pooling):
    """One vector for each sentence, (dim,).

    Args:
        mixed: makes a vector for each token.
        kind: how to pool them.
    """

    def __init__(self, mixed: Mixed, kind: Pooling) -> None:
        super().__init__(kind)
        self._mixed = mixed

    def _vectors(self, sentence: Sentence, values: Array) -> Array:
        return self._mixed.whole(sentence, values)


class PooledLayers(_Pooling):
    """One vector for each layer of a sentence, (layers, dim)."""

    def _vectors(self, sentence: Sentence, values: Array) -> Array:
        return values


class _Values:
    """All layers as a bare array, (layers, time, dim)."""

    def __init__(self) -> None:
        self._layers = AllLayers()

    def whole(self, sentence: Sentence, values: Array) -> Array:
        return self._layers.whole(sentence, values).values

    def pieces(self, sentence: Sentence, pieces: Iterator[Array]) -> Array:
        return self._layers.pieces(sentence, pieces).values


def choose_finish(
    layers: LayerChoice | Literal["all"], pooling: Pooling | None, n_layers: int
) -> Finish[Array]:
    """Choose what makes an array of a sentence.

    Args:
        layers: a choice of layers, or "all".
        pooling: how to pool the tokens, or None for a vector each.
        n_layers: how many layers the model has.
    """
    if isinstance(layers, str) and layers == "all":
        return _Values() if pooling is None else PooledLayers(pooling)
    mixed = Mixed(layers, n_layers)
    return mixed if pooling is None else Pooled(mixed, pooling)

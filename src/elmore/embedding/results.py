"""From the layers of a sentence to what a caller asked for: all of them, a mix, or pooled."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmore.base.messages import shown
from elmore.config import BiLmConfig
from elmore.errors import ConfigError, ElmoreError
from elmore.options import LayerChoice, Output, Pooling, check_pooling
from elmore.text.sentence import Sentence

__all__ = [
    "Array",
    "Finish",
    "LayerChoice",
    "Pooling",
    "SentenceLayers",
    "all_layers",
    "check_sif",
    "choose_finish",
    "cosine",
    "finite",
    "layer_weights",
    "pool",
    "unit",
    "unit_length",
    "value_shape",
]

Array = NDArray[np.float32]
Result = TypeVar("Result", covariant=True)
Floats = TypeVar("Floats", bound=NDArray[np.floating])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SentenceLayers:
    """Every layer of every token of one sentence.

    Attributes:
        tokens: the tokens.
        spans: where each token is in the text, or None if tokens were given.
        values: (layers, time, dim); layer 0 is the token layer, which knows no context.
    """

    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...] | None
    values: Array

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        # Not the numbers: a sentence has thousands of them.
        return f"SentenceLayers({reprlib.repr(self.tokens)}, values={self.values.shape})"

    def _repr_html_(self) -> str:
        from elmore.embedding.pictures import layers_html

        return layers_html(self)

    def mix(self, layers: LayerChoice = "mean") -> Array:
        """One vector per token, (time, dim), as `Elmo.embed` gives it."""
        weights = layer_weights(layers, self.values.shape[0])
        with np.errstate(over="ignore", invalid="ignore"):
            vectors = np.asarray(np.einsum("l,ltd->td", weights, self.values))
        return finite(self.tokens, vectors)


# --------------------------------------------------------------------------- layers


def layer_weights(layers: LayerChoice, n_layers: int) -> Array:
    """Turn a choice of layers into one weight per layer, (n_layers,).

    Given weights are used as they are, without a softmax.
    """
    weights = np.zeros(n_layers, np.float32)
    if isinstance(layers, str):
        if layers not in ("mean", "top"):
            raise ConfigError(
                f'layers={layers!r}; use "mean", "top", a number or {n_layers} weights'
            )
        weights[-1] = 1
        return np.full(n_layers, 1 / n_layers, np.float32) if layers == "mean" else weights
    # True is an int in Python, but not the number of a layer.
    if isinstance(layers, int | np.integer) and not isinstance(layers, bool):
        if not 0 <= layers < n_layers:
            raise ConfigError(
                f"layers={layers} but this model has layers 0..{n_layers - 1}; use one of them, "
                '"mean" or "top"'
            )
        weights[layers] = 1
        return weights
    try:
        weights = np.asarray(layers, np.float32)
    except (TypeError, ValueError):
        weights = np.zeros(0, np.float32)
    if weights.shape != (n_layers,) or not np.isfinite(weights).all():
        raise ConfigError(
            f"layers={layers!r} but this model has {n_layers} layers; give one number for each"
        )
    return weights


def value_shape(config: BiLmConfig, output: Output) -> tuple[int | None, ...]:
    """The shape of a sentence's values, with None for the number of tokens.

    Raises:
        ConfigError: the model does not have these layers.
    """
    if output.pool == "sif":
        check_sif(output.layers)
        return (config.lstm.projection_dim,)
    choose_finish(output.layers, output.pool, config.n_layers)  # refuses layers that are not there
    shape: tuple[int | None, ...] = (config.dim,) if output.pool else (None, config.dim)
    return (config.n_layers, *shape) if output.all_layers else shape


# --------------------------------------------------------------------------- pooling


def check_sif(layers: LayerChoice | Literal["all"]) -> None:
    """Refuse a choice of layers with `pool="sif"`, which has its own; "mean" is the default."""
    if not (isinstance(layers, str) and layers == "mean"):
        raise ConfigError('pool="sif" uses the token layer; leave out layers')


def pool(vectors: Array, how: Pooling) -> Array:
    """Pool the vectors of a sentence's tokens; the sentence markers are not among them.

    Args:
        vectors: (..., time, dim).
        how: mean, maximum of each feature, or the first or last token's vector.

    Returns:
        (..., dim); zeros for a sentence without tokens.
    """
    if not vectors.shape[-2]:
        return np.zeros((*vectors.shape[:-2], vectors.shape[-1]), np.float32)
    if how == "first":
        return vectors[..., 0, :].copy()
    if how == "last":
        return vectors[..., -1, :].copy()
    if how == "mean":
        # In float64: a sum of thousands of terms in float32 is wrong in the fifth digit.
        total = vectors.sum(axis=-2, dtype=np.float64)
        return np.asarray(total / vectors.shape[-2], np.float32)
    if how != "max":
        raise ConfigError(f"pool={how!r} does not pool the vectors of tokens alone; use encode")
    largest: Array = vectors.max(axis=-2)
    return largest


def unit_length(vectors: Array) -> Array:
    """Scale an array to a Euclidean norm of 1 over all its numbers; zeros stay zeros."""
    length = np.linalg.norm(vectors)
    return np.asarray(vectors / length if length > 0 else vectors, np.float32)


def cosine(a: ArrayLike, b: ArrayLike) -> float | Array:
    """The cosine between vectors.

    Args:
        a: a vector (dim,) or a matrix (n, dim).
        b: a vector (dim,) or a matrix (m, dim).

    Returns:
        a number for two vectors; (n,) or (m,) for a matrix and a vector; (n, m) for two matrices.
        The cosine of a zero vector with any other is 0.

    Examples:
        >>> from elmore import cosine
        >>> cosine([1.0, 0.0], [1.0, 1.0])
        0.7071067690849304
    """
    left, right = np.asarray(a, np.float32), np.asarray(b, np.float32)
    for array in (left, right):
        if array.ndim not in (1, 2):
            raise ConfigError(
                f"cosine of an array of shape {array.shape}; pass vectors or matrices"
            )
    if left.shape[-1] != right.shape[-1]:
        raise ConfigError(
            f"cosine of vectors of {left.shape[-1]} and {right.shape[-1]} numbers; use equal sizes"
        )
    result: Any = unit(left) @ unit(right).T
    return float(result) if np.ndim(result) == 0 else result


def unit(vectors: Floats) -> Floats:
    """Scale each vector to length 1, (..., dim); zeros stay zeros."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return cast(Floats, np.asarray(vectors / np.where(norms == 0, 1, norms), vectors.dtype))


# --------------------------------------------------------------------------- finishing a sentence


class Finish(Protocol[Result]):
    """Makes the result of a sentence from its layers."""

    def __call__(self, sentence: Sentence, values: Array, /) -> Result:
        """Finish a sentence.

        Args:
            sentence: its tokens.
            values: its layers, (layers, time, dim): a view of a batch, so copy what is kept.
        """


def all_layers(sentence: Sentence, values: Array, /) -> SentenceLayers:
    """The `Finish` that keeps everything."""
    values = finite(sentence.tokens, values.copy())
    return SentenceLayers(sentence.tokens, sentence.spans, values)


def choose_finish(
    layers: LayerChoice | Literal["all"], pool: Pooling | None, n_layers: int
) -> Finish[Array]:
    """The `Finish` that mixes the layers of each token, (time, dim), and pools if asked, (dim,).

    Args:
        layers: a choice of layers; or "all" for the layers as they are, (layers, time, dim), or
            (layers, dim) if pooled.
        pool: how to pool the tokens, or None for one vector per token.
        n_layers: how many layers the model has.
    """
    if isinstance(layers, str) and layers == "all":
        return _finish(np.copy, pool)
    weights = layer_weights(layers, n_layers).tolist()
    terms = [(layer, np.float32(weight)) for layer, weight in enumerate(weights) if weight]

    def mix(values: Array) -> Array:
        if not terms:
            return np.zeros(values.shape[1:], np.float32)
        # Layer by layer, so that the order of the sum never depends on the rest of the batch.
        (layer, weight), *others = terms
        result: Array = values[layer] * weight
        for layer, weight in others:
            result += values[layer] * weight
        return result

    return _finish(mix, pool)


def _finish(vectors: Callable[[Array], Array], pooling: Pooling | None) -> Finish[Array]:
    if pooling is not None:
        check_pooling(pooling)

    def finish(sentence: Sentence, values: Array, /) -> Array:
        # What overflows is reported once, by `finite`.
        with np.errstate(over="ignore", invalid="ignore"):
            result = vectors(values)
            if pooling is not None:
                result = pool(result, pooling)
        return finite(sentence.tokens, result)

    return finish


def finite(tokens: Sequence[str], values: Array) -> Array:
    """Pass on the values of a sentence; every result of every interface comes by here.

    Raises:
        ElmoreError: some are NaN or infinite.
    """
    if not np.isfinite(values).all():
        # Not all tokens: a sentence can be as long as a book.
        text = shown(" ".join(tokens[:60]), 60)
        raise ElmoreError(
            f"the vectors of '{text}' are not finite; check the weights of the model and of the "
            "layers"
        )
    return values

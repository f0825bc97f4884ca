"""From the layers of a sentence to what a caller asked for: all of them, a mix, or pooled."""

from __future__ import annotations

import html
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmore.base.messages import shown
from elmore.config import BiLmConfig
from elmore.errors import ConfigError, ElmoreError
from elmore.options import LayerChoice, Output, Pooling
from elmore.text.tokenizer import Sentence

Array = NDArray[np.float32]
Result = TypeVar("Result")
Floats = TypeVar("Floats", bound=NDArray[np.floating])
# Makes the result of a sentence from its tokens and its layers, (layers, time, dim). These are a
# view of a batch, so copy what is kept.
Finish = Callable[[Sentence, Array], Result]
# What a notebook shows: a map of more tokens would not fit into a cell.
_MAX_TOKENS = 30
_PIXELS = 14
_NEGATIVE, _POSITIVE = np.array([217, 95, 2]), np.array([8, 69, 148])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SentenceLayers:
    """Every layer of every token of one sentence.

    Attributes:
        tokens: the tokens.
        spans: where each token is in the text, or None if tokens were given.
        values: (layers, time, dim); layer 0 is the token layer, without context.
    """

    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...] | None
    values: Array

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        # Not the numbers: a sentence has thousands of them.
        return f"SentenceLayers({reprlib.repr(self.tokens)}, values={self.values.shape})"

    def mix(self, layers: LayerChoice = "mean") -> Array:
        """One vector per token, (time, dim), as `Elmo.embed` gives it."""
        weights = layer_weights(layers, self.values.shape[0])
        with np.errstate(over="ignore", invalid="ignore"):
            vectors = mix_layers(self.values, weights)
        return finite(self.tokens, vectors)

    def _repr_html_(self) -> str:
        """One map per layer with the cosine of every two tokens; the scale is fixed, -1 to 1."""
        n_layers, n_tokens, dim = self.values.shape
        some = min(n_tokens, _MAX_TOKENS)
        # Tokens may come from anyone's files: nothing is left unescaped.
        names = [f"{html.escape(token)}<br>" for token in self.tokens[:some]]
        heads = "".join(f"<th>layer {k}</th>" for k in range(n_layers))
        maps = "".join(f"<td>{_map(values)}</td>" for values in self.values[:, :some])
        more = f"; the first {some} tokens are shown" if some < n_tokens else ""
        return (
            f"<p>{n_layers} layers, {n_tokens} tokens, {dim} dimensions. "
            f"Cosine of every two tokens: blue is 1, white 0, orange -1{more}.</p>"
            f"<table><tr><th></th>{heads}</tr>"
            f'<tr><td style="line-height:{_PIXELS}px">{"".join(names)}</td>{maps}</tr></table>'
        )


def _map(vectors: Array) -> str:
    """A square of colours, one for the cosine of every two vectors."""
    cosines = np.asarray(cosine(vectors, vectors)).clip(-1, 1)[..., None]
    ends = np.where(cosines < 0, _NEGATIVE, _POSITIVE)
    colours = np.round(255 + np.abs(cosines) * (ends - 255)).astype(int)
    rows = "".join(
        f"<tr>{''.join(f'<td bgcolor=#{r:02x}{g:02x}{b:02x}>' for r, g, b in row)}"
        for row in colours.tolist()
    )
    size = _PIXELS * len(vectors)
    return f'<table style="border-spacing:0;width:{size}px;height:{size}px">{rows}</table>'


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


def mix_layers(values: Array, weights: Array) -> Array:
    """The weighted sum of layers, (layers, time, dim) -> (time, dim)."""
    used = np.flatnonzero(weights)
    if not len(used):
        return np.zeros(values.shape[1:], np.float32)
    # Layer by layer, so that the order of the sum never depends on the rest of the batch.
    result: Array = values[used[0]] * weights[used[0]]
    for layer in used[1:]:
        result += values[layer] * weights[layer]
    return result


def value_shape(config: BiLmConfig, output: Output) -> tuple[int | None, ...]:
    """The shape of a sentence's values, with None for the number of tokens.

    Raises:
        ConfigError: the model does not have these layers.
    """
    if output.pool == "sif":
        if not (isinstance(output.layers, str) and output.layers == "mean"):  # the default
            raise ConfigError('pool="sif" uses the token layer; leave out layers')
        return (config.lstm.projection_dim,)
    shape: tuple[int | None, ...] = (config.dim,) if output.pool else (None, config.dim)
    if output.all_layers:
        return (config.n_layers, *shape)
    layer_weights(cast(LayerChoice, output.layers), config.n_layers)
    return shape


# --------------------------------------------------------------------------- pooling


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
    return np.asarray(_POOLINGS[how](vectors), np.float32)


# All but "sif", which needs the words and their frequencies (`sif.py`).
_POOLINGS: dict[Pooling, Callable[[Array], NDArray[Any]]] = {
    # In float64: a sum of thousands of terms in float32 is wrong in the fifth digit.
    "mean": lambda vectors: vectors.mean(axis=-2, dtype=np.float64),
    "max": lambda vectors: vectors.max(axis=-2),
    "first": lambda vectors: vectors[..., 0, :].copy(),
    "last": lambda vectors: vectors[..., -1, :].copy(),
}


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


def all_layers(sentence: Sentence, values: Array, /) -> SentenceLayers:
    """The `Finish` that keeps everything."""
    values = finite(sentence.tokens, values.copy())
    return SentenceLayers(sentence.tokens, sentence.spans, values)


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

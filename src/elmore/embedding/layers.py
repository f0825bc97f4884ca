"""All layers of a sentence as numpy, and ways to choose among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmore.errors import ConfigError

__all__ = ["LayerChoice", "SentenceLayers", "layer_weights"]

# "mean", "top", the number of a layer, or one weight for each layer.
LayerChoice = Literal["mean", "top"] | int | Sequence[float]


@dataclass(frozen=True, slots=True, eq=False)
class SentenceLayers:
    """Every layer of every token of one sentence.

    Attributes:
        tokens: the tokens.
        spans: where each token stands in the text, or None if tokens were given.
        values: (layers, time, dim); layer 0 is the token layer, which knows no context.
    """

    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...] | None
    values: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.tokens)

    def mix(self, layers: LayerChoice = "mean") -> NDArray[np.float32]:
        """Give one vector for each token, (time, dim), as `Elmo.embed` does."""
        weights = layer_weights(layers, self.values.shape[0])
        return np.asarray(np.einsum("l,ltd->td", weights, self.values))


def layer_weights(layers: LayerChoice, n_layers: int) -> NDArray[np.float32]:
    """Turn a choice of layers into one weight for each, (n_layers,).

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
    if isinstance(layers, int | np.integer) and not isinstance(layers, bool):
        if not 0 <= layers < n_layers:
            raise ConfigError(
                f"layers={layers} but this model has layers 0..{n_layers - 1}; use one of them, "
                '"mean" or "top"'
            )
        weights[layers] = 1
        return weights
    return _given_weights(layers, n_layers)


def _given_weights(layers: Any, n_layers: int) -> NDArray[np.float32]:
    try:
        given = np.asarray(layers, np.float32)
    except (TypeError, ValueError):
        given = np.zeros(0, np.float32)
    if given.shape != (n_layers,) or not np.isfinite(given).all():
        raise ConfigError(
            f"layers={layers!r} but this model has {n_layers} layers; give one number for each"
        )
    return given

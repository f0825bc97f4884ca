"""Random weights to start from, in the distributions of bilm-tf."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from elmore.config import BiLmConfig, weight_shapes

Array = NDArray[np.float32]

# The gate of a highway layer starts nearly closed, so that the features pass unchanged.
_HIGHWAY_GATE_BIAS = -2.0


def initial_weights(config: BiLmConfig, generator: np.random.Generator) -> dict[str, Array]:
    """Draw all weights of a biLM, by the names of `weight_shapes`, from the generator alone."""
    relu = config.tokens.activation == "relu"
    return {
        name: _draw(name, shape, relu, generator) for name, shape in weight_shapes(config).items()
    }


def _draw(name: str, shape: tuple[int, ...], relu: bool, generator: np.random.Generator) -> Array:
    def uniform(bound: float) -> Array:
        return (generator.random(shape, np.float32) * 2 - 1) * np.float32(bound)

    if name == "tokens.characters":
        return uniform(1)
    if name.endswith("bias"):
        bias = np.zeros(shape, np.float32)
        if "highways" in name:
            bias[len(bias) // 2 :] = _HIGHWAY_GATE_BIAS
        return bias
    if name == "tokens.words" or name.endswith(".projection"):
        return uniform(math.sqrt(6 / sum(shape)))
    if not name.startswith("tokens."):
        # bilm-tf holds input and state weights as one matrix of twice as many rows.
        return uniform(math.sqrt(6 / (2 * shape[1] + shape[0])))
    if "convolutions" in name and relu:
        return uniform(0.05)
    fan_in = math.prod(shape[1:])
    return generator.standard_normal(shape, np.float32) * np.float32(math.sqrt(1 / fan_in))

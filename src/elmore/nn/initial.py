"""Random weights in a module."""

from __future__ import annotations

import numpy as np
import torch

from elmore.initial_weights import initial_weights
from elmore.nn.bilm import BiLm

__all__ = ["initialise"]


def initialise(bilm: BiLm, generator: np.random.Generator) -> None:
    """Fill all weights of a biLM with `initial_weights`.

    Args:
        bilm: the module to fill.
        generator: the only source of randomness.
    """
    weights = initial_weights(bilm.config, generator)
    with torch.no_grad():
        for name, parameter in bilm.named_parameters():
            parameter.copy_(torch.from_numpy(weights[name]))

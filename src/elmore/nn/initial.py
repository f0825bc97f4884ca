"""Random weights to start a training from, as bilm-tf draws them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from elmore.nn.bilm import BiLm

__all__ = ["initialise"]

# The gate of a highway layer starts nearly closed, so that the features pass unchanged.
_HIGHWAY_GATE_BIAS = -2.0


def initialise(bilm: BiLm, generator: torch.Generator) -> None:
    """Fill all weights with random values in the distributions of bilm-tf.

    Args:
        bilm: the module to fill, on the CPU.
        generator: the only source of randomness.
    """
    relu = bilm.config.tokens.activation == "relu"
    with torch.no_grad():
        for name, weight in bilm.named_parameters():
            kind, leaf = name.split(".")[0:2] if name.startswith("tokens.") else ("lstm", "")
            field = name.rsplit(".", 1)[1]
            if name == "tokens.characters":
                weight.uniform_(-1, 1, generator=generator)
            elif name == "tokens.words":
                _glorot(weight, generator)
            elif kind == "lstm":
                _initialise_lstm(field, weight, generator)
            elif field == "bias":
                weight.zero_()
                if leaf == "highways":
                    weight[len(weight) // 2 :] = _HIGHWAY_GATE_BIAS
            elif leaf == "convolutions" and relu:
                weight.uniform_(-0.05, 0.05, generator=generator)
            else:
                fan_in = weight[0].numel()
                weight.normal_(0, math.sqrt(1 / fan_in), generator=generator)


def _initialise_lstm(field: str, weight: Tensor, generator: torch.Generator) -> None:
    if field == "bias":
        weight.zero_()
    elif field == "projection":
        _glorot(weight, generator)
    else:
        # bilm-tf holds input and state weights as one matrix of twice as many rows.
        _glorot(weight, generator, fan=2 * weight.shape[1] + weight.shape[0])


def _glorot(weight: Tensor, generator: torch.Generator, fan: int | None = None) -> None:
    bound = math.sqrt(6 / (fan if fan is not None else sum(weight.shape)))
    weight.uniform_(-bound, bound, generator=generator)

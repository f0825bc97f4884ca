"""The task's own mixture of the biLM's layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from elmore.errors import ConfigError

__all__ = ["LayerNorm", "ScalarMix", "mix", "normalise"]

LayerNorm = Literal["sentence", "batch"]

# AllenNLP's guard against a zero variance.
_TINY = 1e-13


def mix(layers: Tensor, weights: Tensor, gamma: Tensor) -> Tensor:
    """Weigh the biLM layers into one vector per token (Peters et al. 2018, §3.2, eq. 1).

    Args:
        layers: all layers, (layers, batch, time, dim).
        weights: unnormalised layer scores, (layers,).
        gamma: the scale of the whole vector, ().

    Returns:
        (batch, time, dim).
    """
    return torch.einsum("l,l...->...", gamma * torch.softmax(weights, dim=0), layers)


class ScalarMix(nn.Module):
    """gamma * sum_j s_j h_j with s = softmax(w); all w are one parameter vector.

    Args:
        n_layers: number of layers, the token layer included.
        layer_norm: None, or normalise each layer before mixing: "sentence" with the statistics
            of a sentence's own tokens, "batch" with those of all tokens of the batch (as
            AllenNLP and bilm-tf did: results then depend on the batch).
        initial: scores w to start from; zeros (an equal mix) if not given.
        gamma: scale to start from.
        trainable: False keeps w and gamma as they are.
    """

    def __init__(
        self,
        n_layers: int,
        *,
        layer_norm: LayerNorm | None = None,
        initial: Sequence[float] | None = None,
        gamma: float = 1.0,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        if layer_norm is not None and layer_norm not in get_args(LayerNorm):
            raise ConfigError(f'layer_norm={layer_norm!r}; use None, "sentence" or "batch"')
        if n_layers < 1:
            raise ConfigError(f"n_layers={n_layers}; a mix needs one layer or more")
        scores = [0.0] * n_layers if initial is None else [float(score) for score in initial]
        if len(scores) != n_layers:
            raise ConfigError(
                f"initial has {len(scores)} scores but there are {n_layers} layers; give one each"
            )
        self.layer_norm = layer_norm
        self.weights = nn.Parameter(torch.tensor(scores), requires_grad=trainable)
        self.gamma = nn.Parameter(torch.tensor(float(gamma)), requires_grad=trainable)

    def forward(self, layers: Tensor | Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Mix layers.

        Args:
            layers: (layers, batch, time, dim), or one (batch, time, dim) for each layer.
            mask: which tokens are real, (batch, time); needed with a layer norm, where padding
                must not count.

        Returns:
            (batch, time, dim).
        """
        values = layers if isinstance(layers, Tensor) else torch.stack(tuple(layers))
        if values.shape[0] != len(self.weights):
            raise ConfigError(
                f"{values.shape[0]} layers for a mix of {len(self.weights)}; give all layers"
            )
        if self.layer_norm is not None:
            if mask is None:
                raise ConfigError("a mix with layer_norm needs to know the padding; pass mask")
            values = normalise(values, mask, self.layer_norm)
        return mix(values, self.weights, self.gamma)

    def penalty(self, strength: float) -> Tensor:
        """Give strength * ||w||^2, the paper's pull towards an equal mix (§3.3), ()."""
        return strength * self.weights.square().sum()


def normalise(values: Tensor, mask: Tensor, kind: LayerNorm) -> Tensor:
    """Shift and scale each layer to mean 0 and variance 1 over its real tokens and features.

    Args:
        values: (layers, batch, time, dim).
        mask: which tokens are real, (batch, time).
        kind: as in `ScalarMix`.
    """
    dims = (2, 3) if kind == "sentence" else (1, 2, 3)
    real = mask.to(values.dtype)[None, :, :, None]
    counts = real.sum(dim=dims, keepdim=True).clamp(min=1) * values.shape[3]
    mean = (values * real).sum(dim=dims, keepdim=True) / counts
    variance = ((values - mean) * real).square().sum(dim=dims, keepdim=True) / counts
    return (values - mean) / torch.sqrt(variance + _TINY)

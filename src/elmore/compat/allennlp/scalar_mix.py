"""AllenNLP's `ScalarMix`: a parameter of its own for each layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmore.errors import ConfigError
from elmore.nn.elmo_layer import mix, normalise

__all__ = ["ScalarMix"]


class ScalarMix(nn.Module):
    """gamma * sum(s_k * tensor_k), s = softmax(w).

    Args:
        mixture_size: number of tensors.
        do_layer_norm: normalise each with the statistics of the whole batch first.
        initial_scalar_parameters: w to start from; zeros by default.
        trainable: False keeps w and gamma as they are.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        start = [0.0] * mixture_size
        if initial_scalar_parameters is not None:
            start = [float(value) for value in initial_scalar_parameters]
        if len(start) != mixture_size:
            raise ConfigError(
                f"{len(start)} initial_scalar_parameters for a mix of {mixture_size}; give one each"
            )
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        self.scalar_parameters = nn.ParameterList(
            [nn.Parameter(torch.tensor([value]), requires_grad=trainable) for value in start]
        )
        self.gamma = nn.Parameter(torch.tensor([1.0]), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Mix tensors of one shape.

        Args:
            tensors: `mixture_size` times (batch, time, dim); any shape without layer norm.
            mask: which tokens are real, (batch, time); needed with layer norm.
        """
        if len(tensors) != self.mixture_size:
            raise ConfigError(
                f"{len(tensors)} tensors for a mix of {self.mixture_size}; give all layers"
            )
        values = torch.stack(tuple(tensors))
        if self.do_layer_norm:
            if mask is None:
                raise ConfigError("a mix with do_layer_norm needs the mask; pass it")
            values = normalise(values, mask, "batch")
        weights = torch.cat(list(self.scalar_parameters))
        return mix(values, weights, self.gamma)

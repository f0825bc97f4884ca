"""bilm-tf's `weight_layers`: the task's own mix, with its regularisation."""

from __future__ import annotations

from typing import TypedDict

import torch
from torch import Tensor, nn

from elmore.compat.bilm.model import BiLmOps
from elmore.nn.elmo_layer import ScalarMix

__all__ = ["LayerWeights", "Weighted", "weight_layers"]


class Weighted(TypedDict):
    """A mix.

    `weighted_op` (batch, time, dim), `regularization_op` (), and `module`, which holds what
    learns: call it with the next batch, and give its parameters to an optimizer.
    """

    weighted_op: Tensor
    regularization_op: Tensor
    module: LayerWeights


class LayerWeights(nn.Module):
    """Mixes the layers that `BidirectionalLanguageModel` gives.

    Args:
        name: what bilm-tf called its variables after.
        n_layers: number of layers.
        l2_coef: strength of the pull of the scores towards zero; None for 0.
        use_top_only: the top layer times gamma, without scores.
        do_layer_norm: normalise each layer over all tokens of the batch first.
    """

    def __init__(
        self,
        name: str,
        n_layers: int,
        l2_coef: float | None = None,
        use_top_only: bool = False,
        do_layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self.l2_coef = l2_coef or 0.0
        self.use_top_only = use_top_only
        norm = "batch" if do_layer_norm and not use_top_only else None
        self.mix = ScalarMix(1 if use_top_only else n_layers, layer_norm=norm)  # type: ignore[arg-type]  # mypy widens the literal
        self.mix.weights.requires_grad_(not use_top_only)

    def forward(self, bilm_ops: BiLmOps) -> Tensor:
        """Mix a batch, (batch, time, dim)."""
        layers = bilm_ops["lm_embeddings"].transpose(0, 1)
        mixed: Tensor = self.mix(layers[-1:] if self.use_top_only else layers, bilm_ops["mask"])
        return mixed

    def regularization(self) -> Tensor:
        """Give l2_coef times the sum of squared scores, ()."""
        if self.use_top_only:
            return torch.zeros(())
        return self.mix.penalty(self.l2_coef)


def weight_layers(
    name: str,
    bilm_ops: BiLmOps,
    l2_coef: float | None = None,
    use_top_only: bool = False,
    do_layer_norm: bool = False,
) -> Weighted:
    """Make a mix and apply it to a batch.

    Arguments are those of `LayerWeights`, with the batch in the second place.
    """
    module = LayerWeights(
        name, bilm_ops["lm_embeddings"].shape[1], l2_coef, use_top_only, do_layer_norm
    )
    return {
        "weighted_op": module(bilm_ops),
        "regularization_op": module.regularization(),
        "module": module,
    }

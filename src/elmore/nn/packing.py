"""`kernels.recurrence.Packing` as tensors, on the device of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from elmore.kernels import recurrence as kernels

__all__ = ["Packing"]


@dataclass(frozen=True, slots=True)
class Packing:
    """The real tokens of a batch, step by step; attributes as in `kernels.recurrence.Packing`."""

    sizes: tuple[int, ...]
    order: Tensor
    forward: Tensor
    backward: Tensor
    last: Tensor

    @classmethod
    def plan(cls, lengths: Tensor, time: int) -> Packing:
        """Plan the packed order.

        Args:
            lengths: tokens of each sentence, (batch,).
            time: length of the padded batch.
        """
        plan = kernels.Packing.plan(lengths.cpu().numpy(), time)
        order, forward, backward, last = (
            torch.from_numpy(part).to(lengths.device)
            for part in (plan.order, plan.forward, plan.backward, plan.last)
        )
        return cls(plan.sizes, order, forward, backward, last)

"""Where each token of a batch stands in the packed order that the LSTMs walk through."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Packing"]


@dataclass(frozen=True, slots=True)
class Packing:
    """The real tokens of a batch, step by step, longest sentence first.

    Attributes:
        sizes: sentences alive at each step.
        order: sentence of each packed row of a step, (batch,).
        forward: flat position (sentence * time + place) of each packed row when every sentence
            is read from its start, (n_rows,).
        backward: the same when every sentence is read from its own end, (n_rows,).
        last: packed row of the last step of each row of `order`, (batch,); -1 for a sentence
            without tokens.
    """

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
        device, counts = lengths.device, lengths.cpu()
        if counts.shape[0] == 1 and int(counts) == time:  # one sentence: nothing to sort
            places = torch.arange(time, device=device)
            first = torch.zeros(1, dtype=torch.long, device=device)
            return cls((1,) * time, first, places, places.flip(0), first + (time - 1))
        ordered, order = torch.sort(counts, descending=True, stable=True)
        steps = int(ordered[0]) if len(ordered) else 0
        # alive[t, r]: sentence order[r] has a token at step t; true cells in row order are the
        # packed rows.
        alive = torch.arange(steps)[:, None] < ordered[None, :]
        step, row = alive.nonzero(as_tuple=True)
        base = order[row] * time
        sizes = alive.sum(dim=1)
        starts = torch.cumsum(sizes, dim=0) - sizes
        last = torch.full_like(ordered, -1)
        living = ordered > 0
        last[living] = starts[ordered[living] - 1] + torch.arange(len(ordered))[living]
        return cls(
            sizes=tuple(sizes.tolist()),
            order=order.to(device),
            forward=(base + step).to(device),
            backward=(base + ordered[row] - 1 - step).to(device),
            last=last.to(device),
        )

"""Where each token of a batch is in the packed order that the LSTMs walk through."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Packing"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Packing:
    """The real tokens of a batch, step by step, longest sentence first.

    Step t has one row for each of the `sizes[t]` sentences that are longer than t, so the rows of
    later steps are a prefix of those of earlier ones.

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
    order: Ints
    forward: Ints
    backward: Ints
    last: Ints

    @classmethod
    def plan(cls, lengths: Ints, time: int) -> Packing:
        """Plan the packed order.

        Args:
            lengths: tokens of each sentence, (batch,).
            time: length of the padded batch.
        """
        if len(lengths) == 1 and lengths[0] == time:  # one sentence: nothing to sort
            places = np.arange(time)
            last = np.array([time - 1])
            return cls((1,) * time, np.zeros(1, np.int64), places, places[::-1].copy(), last)
        order = np.argsort(-lengths, kind="stable")
        ordered = lengths[order]
        steps = int(ordered[0]) if len(ordered) else 0
        # alive[t, r]: sentence order[r] has a token at step t; true cells in row order are the
        # packed rows.
        alive = np.arange(steps)[:, None] < ordered[None, :]
        step, row = alive.nonzero()
        sizes = alive.sum(axis=1)
        starts = np.cumsum(sizes) - sizes
        last = np.full(len(order), -1)
        living = int((ordered > 0).sum())
        last[:living] = starts[ordered[:living] - 1] + np.arange(living)
        first = order[row] * time
        return cls(
            tuple(sizes.tolist()), order, first + step, first + ordered[row] - 1 - step, last
        )

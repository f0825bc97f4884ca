"""State that goes on from one batch to the next, row by row, as the published programs carry it.

A smaller batch uses the first rows and leaves the others alone; a larger one adds fresh rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from elmore.nn.bilm import BiLmState

__all__ = ["first_rows", "store_rows"]


def first_rows(kept: BiLmState | None, rows: int, fresh: Callable[[int], BiLmState]) -> BiLmState:
    """Give the state in which the first rows start.

    Args:
        kept: the state of all rows so far; None before the first batch.
        rows: how many the batch has.
        fresh: makes the state of that many new rows.
    """
    if kept is None:
        return fresh(rows)
    known = kept.hidden.shape[2]
    if known < rows:
        new = fresh(rows - known)
        kept = BiLmState(
            torch.cat([kept.hidden, new.hidden], dim=2), torch.cat([kept.cell, new.cell], dim=2)
        )
    return BiLmState(kept.hidden[:, :, :rows], kept.cell[:, :, :rows])


def store_rows(kept: BiLmState | None, after: BiLmState) -> BiLmState:
    """Put the state of the first rows back.

    Args:
        kept: the state of all rows before the batch.
        after: that of the batch's rows after it.
    """
    rows = after.hidden.shape[2]
    if kept is None or kept.hidden.shape[2] <= rows:
        return after
    return BiLmState(
        torch.cat([after.hidden, kept.hidden[:, :, rows:]], dim=2),
        torch.cat([after.cell, kept.cell[:, :, rows:]], dim=2),
    )

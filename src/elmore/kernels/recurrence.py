"""The recurrent loop without gradients, over packed weights; `kernels.lstm` defines the steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from elmore.errors import NativeError
from elmore.kernels._check import pointer, workspace
from elmore.kernels._load import native
from elmore.kernels.lstm import Clips, _Kept, activate_gates
from elmore.kernels.panels import Matrix

__all__ = ["run_steps"]


def run_steps(
    output: Tensor,
    memory: Tensor,
    gates: Tensor,
    rows: Tensor | None,
    hidden: Tensor,
    sizes: Sequence[int],
    state: Matrix,
    projection: Matrix | None,
    clips: Clips,
) -> None:
    """Run some steps of a packed batch.

    Args:
        output: receives the output of each packed row, (n_rows, dim).
        memory: cell before the first step, (batch, cells); overwritten by each row's last value.
        gates: the inputs' share of the gates with all biases, (n, 4 * cells).
        rows: row of `gates` of each packed row, (n_rows,); None if they are in packed order.
        hidden: output before the first step, (batch, dim).
        sizes: rows of each step, never growing; their sum is n_rows.
        state: weights of the state, (4 * cells, dim), with `gates`.
        projection: (dim, cells), or None where the cell's output is used as it is.
        clips: bounds of cell and projection.
    """
    module = native().module
    if not state.packed or module is None:
        _twin(output, memory, gates, rows, hidden, sizes, state, projection, clips)
        return
    (n_rows, dim), cells = output.shape, memory.shape[1]
    batch, n_gates = min(memory.shape[0], hidden.shape[0]), gates.shape[0]
    steps = np.asarray(sizes, np.int64)
    placed = rows is None or (
        rows.dtype is torch.int64 and rows.is_contiguous() and rows.shape == (n_rows,)
    )
    # What sizes and rows hold is looked at in C, before anything else is done there.
    if not (
        placed
        and _fitting(state, projection, cells, dim)
        and module.recurrence(
            pointer(output, n_rows, dim),
            pointer(memory, memory.shape[0], cells),
            pointer(gates, n_gates, 4 * cells),
            0 if rows is None else rows.data_ptr(),
            pointer(hidden, hidden.shape[0], dim),
            steps.ctypes.data,
            state.argument,
            (0, 0, 0, 0, 0, 0) if projection is None else projection.argument,
            float("inf") if clips.cell is None else clips.cell,
            float("inf") if clips.projection is None else clips.projection,
            len(steps),
            cells,
            dim,
            workspace(module.recurrence_workspace(batch, cells, dim, state.argument[5])),
            n_rows,
            batch,
            n_gates,
        )
    ):
        raise NativeError(
            f"the recurrent kernel got sizes, rows or weights that do not fit {n_rows} rows of "
            f"{cells} cells; report this, or set ELMORE_NATIVE=0"
        )


def _fitting(state: Matrix, projection: Matrix | None, cells: int, dim: int) -> bool:
    """Tell whether packed weights belong to a layer of so many cells and outputs."""
    if not state.gates or state.shape != (4 * cells, dim):
        return False
    if projection is None:
        return dim == cells
    return (
        projection.shape == (dim, cells) and not projection.gates and projection.kind == state.kind
    )


def _twin(
    output: Tensor,
    memory: Tensor,
    gates: Tensor,
    rows: Tensor | None,
    hidden: Tensor,
    sizes: Sequence[int],
    state: Matrix,
    projection: Matrix | None,
    clips: Clips,
) -> None:
    """Run the steps in torch; the definition of the kernel."""
    scratch = _Kept(*(torch.empty_like(memory) for _ in range(3)))
    start = 0
    for size in sizes:
        packed = slice(start, start + size)
        now = gates[packed] if rows is None else gates.index_select(0, rows[packed])
        now = now + state.affine(hidden[:size])
        kept = _Kept(*(part[:size] for part in scratch))
        activate_gates(now, memory[:size], kept, clips.cell)
        hidden = kept.unprojected
        if projection is not None:
            hidden = projection.affine(hidden, clip=clips.projection)
        output[packed] = hidden
        hidden = output[packed]
        start += size

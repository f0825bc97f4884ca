"""The recurrent loop without gradients, over packed weights; `kernels.lstm` defines the steps."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmore.errors import NativeError
from elmore.kernels._check import pointer
from elmore.kernels._load import native
from elmore.kernels.lstm import Clips, _Kept, activate_gates
from elmore.kernels.panels import Matrix

__all__ = ["run_steps"]

_local = threading.local()


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
    steps = np.asarray(sizes, np.int64)
    _check(steps, n_rows, memory, hidden, gates, rows, state, projection)
    kind = state.argument[5]
    most = int(steps[0]) if n_rows else 0
    room = _workspace(module.recurrence_workspace(most, cells, dim, kind))
    module.recurrence(
        pointer(output, n_rows, dim),
        pointer(memory, memory.shape[0], cells),
        pointer(gates, gates.shape[0], 4 * cells),
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
        room.ctypes.data,
    )


def _check(
    steps: NDArray[np.int64],
    n_rows: int,
    memory: Tensor,
    hidden: Tensor,
    gates: Tensor,
    rows: Tensor | None,
    state: Matrix,
    projection: Matrix | None,
) -> None:
    """Look at what C relies on beyond the tensors' own shapes."""
    dim, cells, n_gates = hidden.shape[1], memory.shape[1], gates.shape[0]
    most = int(steps[0]) if len(steps) else 0
    falling = not len(steps) or (int(steps[-1]) > 0 and bool((steps[1:] <= steps[:-1]).all()))
    if rows is None:
        placed = n_rows <= n_gates
    else:
        placed = rows.dtype is torch.int64 and rows.is_contiguous() and rows.shape == (n_rows,)
        if placed and n_rows:
            places = rows.numpy()
            placed = bool(places.min() >= 0 and places.max() < n_gates)
    fitting = state.gates and state.shape == (4 * cells, dim)
    if projection is None:
        fitting = fitting and dim == cells
    else:
        fitting = fitting and projection.shape == (dim, cells) and not projection.gates
        fitting = fitting and projection.kind == state.kind
    if (
        not (falling and placed and fitting)
        or int(steps.sum()) != n_rows
        or most > min(memory.shape[0], hidden.shape[0])
    ):
        raise NativeError(
            f"the recurrent kernel got sizes, rows or weights that do not fit {n_rows} rows of "
            f"{cells} cells; report this, or set ELMORE_NATIVE=0"
        )


def _workspace(size: int) -> NDArray[np.uint8]:
    """Give this thread's scratch memory, grown and kept: fresh pages cost more than the work."""
    room: NDArray[np.uint8] | None = getattr(_local, "room", None)
    if room is None or len(room) < size:
        room = np.empty(size, np.uint8)
        _local.room = room
    return room


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

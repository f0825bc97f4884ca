"""The recurrent loop without gradients, over packed weights; `kernels.lstm` defines the steps."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

import numpy as np
import torch
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
    n_rows, dim, cells = len(output), output.shape[1], memory.shape[1]
    most = sizes[0] if sizes else 0
    _check(sizes, n_rows, memory, hidden, gates, rows, state, projection, (dim, cells))
    kind = state.argument[5]
    steps = np.asarray(sizes, np.int64)
    room = _workspace(module.recurrence_workspace(most, cells, dim, kind))
    module.recurrence(
        pointer(output, n_rows, dim),
        pointer(memory, len(memory), cells),
        pointer(gates, len(gates), 4 * cells),
        0 if rows is None else rows.data_ptr(),
        pointer(hidden, len(hidden), dim),
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
    sizes: Sequence[int],
    n_rows: int,
    memory: Tensor,
    hidden: Tensor,
    gates: Tensor,
    rows: Tensor | None,
    state: Matrix,
    projection: Matrix | None,
    shape: tuple[int, int],
) -> None:
    """Look at what C relies on beyond the tensors' own shapes."""
    dim, cells = shape
    most = sizes[0] if sizes else 0
    falling = all(a >= b > 0 for a, b in itertools.pairwise(sizes))
    places = (
        n_rows <= len(gates)
        if rows is None
        else (
            rows.dtype == torch.int64
            and rows.is_contiguous()
            and len(rows) == n_rows
            and (not n_rows or (int(rows.min()) >= 0 and int(rows.max()) < len(gates)))
        )
    )
    fitting = (
        state.gates
        and state.shape == (4 * cells, dim)
        and (
            dim == cells
            if projection is None
            else projection.shape == (dim, cells)
            and not projection.gates
            and projection.kind == state.kind
        )
    )
    if (
        not (falling and places and fitting)
        or sum(sizes) != n_rows
        or most > len(memory)
        or most > len(hidden)
    ):
        raise NativeError(
            f"the recurrent kernel got sizes, rows or weights that do not fit {n_rows} rows of "
            f"{cells} cells; report this, or set ELMORE_NATIVE=0"
        )


def _workspace(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Give this thread's scratch memory, grown and kept: fresh pages cost more than the work."""
    room: np.ndarray[tuple[int], np.dtype[np.uint8]] | None = getattr(_local, "room", None)
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

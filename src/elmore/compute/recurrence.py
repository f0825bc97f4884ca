"""The recurrent loop of an LSTM with projection and clipping, over a packed batch, no gradients.

The same loop serves both directions: a `Packing` says which token is in which packed row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.compute.matrix import Array, Matrix
from elmore.compute.native import native, pointer, workspace
from elmore.errors import NativeError

Ints = NDArray[np.int64]

# Added to the forget gate at run time, as TensorFlow's LSTMCell does; it is in no file.
FORGET_BIAS = 1.0
# Bytes of input gates that are held at once, so that they stay near the caches and memory does
# not grow with the length of the input.
_GATE_BYTES = 16 << 20
# Up to here the gates of all distinct words are made by one matrix product.
TABLE_BYTES = 256 << 20


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
    def plan(cls, lengths: Ints, time: int, steps: Ints | None = None) -> Packing:
        """Plan the packed order of sentences with `lengths` (batch,), padded to `time`.

        `steps` is how many tokens of each are read, (batch,); all of them by default.
        """
        if steps is None and len(lengths) == 1 and lengths[0] == time:  # nothing to sort
            places = np.arange(time)
            last = np.array([time - 1])
            return cls((1,) * time, np.zeros(1, np.int64), places, places[::-1].copy(), last)
        steps = lengths if steps is None else steps
        order = np.argsort(-steps, kind="stable")
        ordered = steps[order]
        # alive[t, r]: sentence order[r] has a token at step t; true cells in row order are the
        # packed rows.
        alive = np.arange(ordered[0] if len(ordered) else 0)[:, None] < ordered[None, :]
        step, row = alive.nonzero()
        sizes = alive.sum(axis=1)
        starts = np.cumsum(sizes) - sizes
        last = np.full(len(order), -1)
        # Empty sentences come last in the order, and have no last row.
        living = int((ordered > 0).sum())
        last[:living] = starts[ordered[:living] - 1] + np.arange(living)
        first = order[row] * time
        end = first + lengths[order[row]] - 1
        return cls(tuple(sizes.tolist()), order, first + step, end - step, last)


def step_chunks(sizes: Sequence[int], width: int) -> list[tuple[int, int, int]]:
    """Cut steps into runs whose gates, of `width` each, fit: (first, after the last, rows)."""
    budget = max(1, _GATE_BYTES // (width * 4))
    chunks, step = [], 0
    while step < len(sizes):
        first, size = step, sizes[step]
        step += 1
        while step < len(sizes) and size + sizes[step] <= budget:
            size += sizes[step]
            step += 1
        chunks.append((first, step, size))
    return chunks


class Clips(NamedTuple):
    """Bounds of the cell state and of the projected output; None for no bound."""

    cell: float | None
    projection: float | None


def run_steps(
    output: Array,
    cell: Array,
    gates: Array,
    rows: Ints | None,
    hidden: Array,
    sizes: Sequence[int],
    state: Matrix,
    projection: Matrix | None,
    clips: Clips,
) -> None:
    """Run some steps (Peters et al. 2018 §3.1; the order of the clips is bilm-tf's LSTMCell).

    Args:
        output: receives the output of each packed row, (n_rows, dim).
        cell: cell state before the first step, (batch, cells); overwritten by each row's last.
        gates: the inputs' share of the gates with all biases, (n, 4 * cells), in the order input,
            forget, candidate, output.
        rows: row of `gates` of each packed row, (n_rows,); None if they are in packed order.
        hidden: output before the first step, (batch, dim).
        sizes: rows of each step, never growing; their sum is n_rows.
        state: weights of the state, (4 * cells, dim), with `gates`.
        projection: (dim, cells), or None where the cell's output is used as it is.
        clips: bounds of cell and projection.
    """
    module = native().module
    if not state.packed or module is None:
        _reference(output, cell, gates, rows, hidden, sizes, state, projection, clips)
        return
    (n_rows, dim), cells = output.shape, cell.shape[1]
    batch, n_gates = min(cell.shape[0], hidden.shape[0]), gates.shape[0]
    steps = np.asarray(sizes, np.int64)
    placed = rows is None or (
        rows.dtype == np.int64 and rows.flags.c_contiguous and rows.shape == (n_rows,)
    )
    # What sizes and rows hold is looked at in C, before anything else is done there.
    if not (
        placed
        and _fitting(state, projection, cells, dim)
        and module.recurrence(
            pointer(output, n_rows, dim),
            pointer(cell, cell.shape[0], cells),
            pointer(gates, n_gates, 4 * cells),
            0 if rows is None else rows.ctypes.data,
            pointer(hidden, hidden.shape[0], dim),
            steps.ctypes.data,
            state.argument,
            (0, 0, 0, 0, 0, 0) if projection is None else projection.argument,
            float("inf") if clips.cell is None else clips.cell,
            float("inf") if clips.projection is None else clips.projection,
            len(steps),
            cells,
            dim,
            workspace(
                module.recurrence_workspace(
                    batch, cells, dim, state.kind, 0 if projection is None else projection.kind
                )
            ),
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
    """Whether packed weights belong to a layer of so many cells and outputs."""
    if not state.gates or state.shape != (4 * cells, dim):
        return False
    if projection is None:
        return dim == cells
    return (
        projection.shape == (dim, cells)
        and not projection.gates
        and projection.dtype == state.dtype
    )


def _reference(
    output: Array,
    cell: Array,
    gates: Array,
    rows: Ints | None,
    hidden: Array,
    sizes: Sequence[int],
    state: Matrix,
    projection: Matrix | None,
    clips: Clips,
) -> None:
    """Run the steps in numpy; the definition of the kernel."""
    start = 0
    for size in sizes:
        packed = slice(start, start + size)
        now = state.affine(hidden[:size])
        now += gates[packed] if rows is None else gates[rows[packed]]
        hidden = activate_gates(now, cell[:size], clips.cell)
        if projection is not None:
            hidden = projection.affine(hidden, clip=clips.projection)
        output[packed] = hidden
        start += size


def activate_gates(now: Array, cell: Array, clip: float | None) -> Array:
    """Do the element-wise part of one step; the definition of the kernel.

    Args:
        now: gates of the step, (size, 4 * cells); overwritten by the activated gates.
        cell: (size, cells); overwritten by the new cell state.
        clip: bound of the cell state.

    Returns:
        the output before the projection, (size, cells).
    """
    cells = cell.shape[1]
    half = np.float32(0.5)
    # sigmoid(x) = tanh(x / 2) / 2 + 1 / 2: one fast pass over all gates, and nothing overflows.
    inner, outer = now[:, : 2 * cells], now[:, 3 * cells :]
    for gate in (inner, outer):
        np.multiply(gate, half, out=gate)
    np.tanh(now, out=now)
    for gate in (inner, outer):
        np.multiply(gate, half, out=gate)
        np.add(gate, half, out=gate)
    np.multiply(cell, now[:, cells : 2 * cells], out=cell)
    cell += now[:, :cells] * now[:, 2 * cells : 3 * cells]
    if clip is not None:
        np.clip(cell, -clip, clip, out=cell)
    result = np.tanh(cell)
    result *= outer
    return result

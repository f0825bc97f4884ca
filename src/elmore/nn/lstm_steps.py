"""The recurrent loop with gradients, or on a GPU; `compute.recurrence` is the one for inference.

A packed batch holds only real tokens in the order of `compute.recurrence.Packing`. The same loop
serves both directions; which token is in which packed row is the caller's business.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmore.compute.native import native
from elmore.compute.recurrence import Clips
from elmore.errors import NativeError


class _Kept(NamedTuple):
    """What the backward pass needs of each packed row besides the activated gates."""

    cell: Tensor  # (n_rows, cells), after the clip
    tanh_cell: Tensor  # (n_rows, cells)
    unprojected: Tensor  # (n_rows, cells)

    def rows(self, rows: slice) -> _Kept:
        """Those of some rows."""
        return _Kept(self.cell[rows], self.tanh_cell[rows], self.unprojected[rows])


def lstm_steps(
    gates: Tensor,
    sizes: Sequence[int],
    state_weight: Tensor,
    projection: Tensor | None,
    hidden: Tensor,
    cell: Tensor,
    clips: Clips,
    output: Tensor,
    kept: _Kept | None = None,
    *,
    rounded: bool = False,
) -> None:
    """Run steps; arguments are those of `compute.recurrence.run_steps`, but for these.

    Args:
        gates: of each packed row, (n_rows, 4 * cells); overwritten by the activated gates.
        kept: receives what a backward pass needs.
        rounded: whether both factors of every matrix product, and its result, are rounded to
            bfloat16; sums inside a product, gates and cells stay in float32.
    """
    state_matrix = state_weight.t()
    matrix = None if projection is None else projection.t()
    if rounded:
        state_matrix = state_matrix.bfloat16()
        matrix = None if matrix is None else matrix.bfloat16()
    # If nobody asks for them, one step's worth of scratch serves all steps.
    scratch = _Kept(*(cell.new_empty(cell.shape) for _ in range(3)))
    module = _native_for(gates)
    start = 0
    for size in sizes:
        rows = slice(start, start + size)
        now = scratch.rows(slice(size)) if kept is None else kept.rows(rows)
        if rounded:
            gates[rows].add_(hidden[:size].bfloat16() @ state_matrix)
        else:
            gates[rows].addmm_(hidden[:size], state_matrix)
        _activate(module, gates[rows], cell[:size], now, clips.cell)
        hidden = output[rows]
        if matrix is None:
            hidden.copy_(now.unprojected)
        else:
            _multiply(now.unprojected, matrix, hidden)
            if clips.projection is not None:
                hidden.clamp_(-clips.projection, clips.projection)
        start += size


def _multiply(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Multiply in the type of the right factor, into `out`."""
    if right.dtype == left.dtype:
        torch.mm(left, right, out=out)
    else:
        out.copy_(left.to(right.dtype) @ right)


def _activate(module: Any, now: Tensor, cell: Tensor, kept: _Kept, clip: float | None) -> None:
    """Do the element-wise part of a step by the extension, or by `activate_gates`."""
    if module is None:
        activate_gates(now, cell, kept, clip)
        return
    size, cells = cell.shape
    module.lstm_forward(
        _pointer(kept.unprojected, size, cells),
        _pointer(now, size, 4 * cells),
        _pointer(cell, size, cells),
        _pointer(kept.cell, size, cells),
        _pointer(kept.tanh_cell, size, cells),
        _bound(clip),
        size,
        cells,
    )


def activate_gates(now: Tensor, cell: Tensor, kept: _Kept, clip: float | None) -> None:
    """Do the element-wise part of one step; the definition of the kernel.

    As `compute.recurrence.activate_gates`; `kept` receives the new cell, its tanh and the output
    before the projection.
    """
    cells = cell.shape[1]
    now[:, : 2 * cells].sigmoid_()
    now[:, 2 * cells : 3 * cells].tanh_()
    now[:, 3 * cells :].sigmoid_()
    in_gate, forget_gate, candidate, out_gate = now.chunk(4, dim=1)
    cell.mul_(forget_gate).addcmul_(in_gate, candidate)
    if clip is not None:
        cell.clamp_(-clip, clip)
    # In place of autograd's own records: three values per cell are enough to go back.
    kept.cell.copy_(cell)
    torch.tanh(cell, out=kept.tanh_cell)
    torch.mul(kept.tanh_cell, out_gate, out=kept.unprojected)


def differentiate_gates(
    d_now: Tensor,
    d_cell: Tensor,
    d_unprojected: Tensor,
    now: Tensor,
    kept: _Kept,
    before: Tensor,
    clip: float | None,
) -> None:
    """Go back through the element-wise part of one step; the definition of the kernel.

    Args:
        d_now: receives the gradient of the gates before activation, (size, 4 * cells).
        d_cell: gradient of the new cell, (size, cells); overwritten by that of the old one.
        d_unprojected: gradient of the output before the projection, (size, cells).
        now: activated gates, (size, 4 * cells).
        kept: what the step kept.
        before: the old cell, (size, cells).
        clip: bound of the cell.
    """
    in_gate, forget_gate, candidate, out_gate = now.chunk(4, dim=1)
    d_in, d_forget, d_candidate, d_out_gate = d_now.chunk(4, dim=1)
    tanh_cell = kept.tanh_cell
    d_cell.add_(d_unprojected * out_gate * (1 - tanh_cell * tanh_cell))
    if clip is not None:
        # A clipped cell does not change with what it was made of.
        d_cell.mul_(kept.cell.abs() < clip)
    torch.mul(d_unprojected * tanh_cell, out_gate * (1 - out_gate), out=d_out_gate)
    torch.mul(d_cell * candidate, in_gate * (1 - in_gate), out=d_in)
    torch.mul(d_cell * before, forget_gate * (1 - forget_gate), out=d_forget)
    torch.mul(d_cell * in_gate, 1 - candidate * candidate, out=d_candidate)
    d_cell.mul_(forget_gate)


def _differentiate(
    module: Any,
    d_now: Tensor,
    d_cell: Tensor,
    d_unprojected: Tensor,
    now: Tensor,
    kept: _Kept,
    before: Tensor,
    clip: float | None,
) -> None:
    """Go back through a step by the extension, or by `differentiate_gates`."""
    if module is None:
        differentiate_gates(d_now, d_cell, d_unprojected, now, kept, before, clip)
        return
    size, cells = d_cell.shape
    module.lstm_backward(
        _pointer(d_now, size, 4 * cells),
        _pointer(d_cell, size, cells),
        _pointer(d_unprojected, size, cells),
        _pointer(now, size, 4 * cells),
        _pointer(kept.cell, size, cells),
        _pointer(kept.tanh_cell, size, cells),
        _pointer(before, size, cells),
        _bound(clip),
        size,
        cells,
    )


def _native_for(gates: Tensor) -> Any:
    """The extension if it can work on this tensor, else None."""
    if gates.device.type != "cpu" or gates.dtype != torch.float32:
        return None
    return native().module


def _pointer(tensor: Tensor, *shape: int) -> int:
    """The address of a tensor's memory, after checking everything that C relies on."""
    if (
        tensor.dtype is not torch.float32
        or not tensor.is_cpu
        or tensor.shape != shape
        or not tensor.is_contiguous()
    ):
        raise NativeError(
            f"a kernel got {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}, expected "
            f"contiguous float32 {shape} on the CPU; report this, or set ELMORE_NATIVE=0"
        )
    return tensor.data_ptr()


def _bound(clip: float | None) -> float:
    return float("inf") if clip is None else clip


class LstmSteps(torch.autograd.Function):
    """`lstm_steps` with a hand-written backward pass through time.

    Weight gradients come from one matrix product each after the loop, not from one per step.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        sizes: Sequence[int],
        state_weight: Tensor,
        projection: Tensor | None,
        hidden: Tensor,
        cell: Tensor,
        clips: Clips,
        rounded: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """The output (n_rows, dim) and the last cell state (batch, cells); overwrites `gates`."""
        n_rows, cells = gates.shape[0], cell.shape[1]
        output = gates.new_empty(n_rows, hidden.shape[1])
        kept = _Kept(*(gates.new_empty(n_rows, cells) for _ in range(3)))
        last = cell.contiguous().clone()
        # Autograd must not see the overwriting: whatever made the gates does not need them.
        activated = gates.detach()
        steps = (activated, sizes, state_weight, projection, hidden, last, clips, output, kept)
        lstm_steps(*steps, rounded=rounded)
        ctx.save_for_backward(activated, state_weight, projection, hidden, cell, output, *kept)
        ctx.sizes, ctx.clips, ctx.rounded = tuple(sizes), clips, rounded
        return output, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor, d_last: Tensor) -> tuple[Tensor | None, ...]:
        """Go back through the steps (the derivatives of the equations in `lstm_steps`)."""
        gates, state_weight, projection, hidden0, cell0, output, *rest = ctx.saved_tensors
        kept, sizes, clips = _Kept(*rest), ctx.sizes, ctx.clips
        factor = torch.bfloat16 if ctx.rounded else gates.dtype  # of every matrix product
        state_weight = state_weight.to(factor)
        projection = None if projection is None else projection.to(factor)
        d_gates = torch.empty_like(gates)
        d_projected = torch.empty_like(output)
        d_hidden = torch.zeros_like(hidden0)  # of a step's output, through later steps
        d_cell = d_last.contiguous().clone()
        module, cell0 = _native_for(gates), cell0.contiguous()
        start = sum(sizes)
        for step in range(len(sizes) - 1, -1, -1):
            size = sizes[step]
            start -= size
            rows = slice(start, start + size)
            d_out = d_projected[rows]
            # A sentence that ends here gets nothing from later steps: its row is still zero.
            torch.add(d_output[rows], d_hidden[:size], out=d_out)
            d_unprojected = d_out
            if projection is not None:
                if clips.projection is not None:  # a clipped value has no gradient
                    d_out.mul_(output[rows].abs() < clips.projection)
                d_unprojected = (d_out.to(factor) @ projection).to(gates.dtype)
            before = kept.cell[start - sizes[step - 1] :] if step else cell0
            _differentiate(
                module,
                d_gates[rows],
                d_cell[:size],
                d_unprojected,
                gates[rows],
                kept.rows(rows),
                before[:size],
                clips.cell,
            )
            _multiply(d_gates[rows], state_weight, d_hidden[:size])
        # One product over all steps, instead of one in each.
        before_rows = _rows_before(sizes, gates.device)
        first = sizes[0] if sizes else 0
        previous = torch.cat([hidden0[:first], output.index_select(0, before_rows)])
        # Transposed twice, so that the gradients are stored as the weights are (nn/lstm.py).
        d_state_weight = (previous.to(factor).t() @ d_gates.to(factor)).t().to(gates.dtype)
        d_matrix = None
        if projection is not None:
            products = kept.unprojected.to(factor).t() @ d_projected.to(factor)
            d_matrix = products.t().to(gates.dtype)
        return d_gates, None, d_state_weight, d_matrix, d_hidden, d_cell, None, None


def _rows_before(sizes: Sequence[int], device: torch.device) -> Tensor:
    """Find the row of the step before, for every packed row but those of the first step."""
    pieces, start = [], 0
    # Sizes never grow, so the rows of a step follow the first rows of the step before.
    for size, following in itertools.pairwise(sizes):
        pieces.append(torch.arange(start, start + following))
        start += size
    return (
        torch.cat(pieces).to(device) if pieces else torch.empty(0, dtype=torch.long, device=device)
    )

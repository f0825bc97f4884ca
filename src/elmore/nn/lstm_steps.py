"""The recurrent loop with gradients, or on a GPU; `kernels.recurrence` is the one for inference.

A packed batch holds only real tokens in the order of `kernels.recurrence.Packing`. The same loop
serves both directions; which token is in which packed row is the caller's business.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmore.compute.native import native
from elmore.compute.recurrence import Clips
from elmore.errors import NativeError

__all__ = ["LstmSteps", "activate_gates", "differentiate_gates", "lstm_steps"]


class _Kept(NamedTuple):
    """What the backward pass needs of each packed row besides the activated gates."""

    cell: Tensor  # (n_rows, cells), after the clip
    tanh_cell: Tensor  # (n_rows, cells)
    unprojected: Tensor  # (n_rows, cells)


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
    """Run steps (Peters et al. 2018 §3.1; the order of the clips is that of bilm-tf's LSTMCell).

    Args:
        gates: the inputs' share of the gates with all biases, (n_rows, 4 * cells), in the order
            input, forget, candidate, output; overwritten by the activated gates.
        sizes: rows of each step, never growing; their sum is n_rows.
        state_weight: (4 * cells, dim).
        projection: (dim, cells), or None where the cell's output is used as it is.
        hidden: output before the first step, (batch, dim).
        cell: cell state before the first step, (batch, cells); overwritten by each row's last.
        clips: bounds of cell and projection.
        output: receives the output of each row, (n_rows, dim).
        kept: receives what a backward pass needs.
        rounded: whether both factors of every matrix product, and its result, are rounded to
            bfloat16; sums inside a product, gates and cells stay in float32.
    """
    cells, state_matrix = cell.shape[1], state_weight.t()
    matrix = None if projection is None else projection.t()
    if rounded:
        state_matrix = state_matrix.bfloat16()
        matrix = None if matrix is None else matrix.bfloat16()
    if kept is None:  # nobody asks for them: one step's worth of scratch serves all steps
        kept = _Kept(*(cell.new_empty(len(cell), cells) for _ in range(3)))
        stride = 0
    else:
        stride = 1
    activate = _activation(gates, cell, kept, clips.cell)
    start = 0
    for size in sizes:
        rows = slice(start, start + size)
        place = slice(start * stride, start * stride + size)
        if rounded:
            gates[rows].add_(hidden[:size].bfloat16() @ state_matrix)
        else:
            gates[rows].addmm_(hidden[:size], state_matrix)
        activate(start, start * stride, size)
        hidden = output[rows]
        if matrix is None:
            hidden.copy_(kept.unprojected[place])
        else:
            _multiply(kept.unprojected[place], matrix, hidden)
            if clips.projection is not None:
                hidden.clamp_(-clips.projection, clips.projection)
        start += size


def _multiply(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Multiply in the type of the right factor, into `out`."""
    if right.dtype == left.dtype:
        torch.mm(left, right, out=out)
    else:
        out.copy_(left.to(right.dtype) @ right)


def _activation(
    gates: Tensor, cell: Tensor, kept: _Kept, clip: float | None
) -> Callable[[int, int, int], None]:
    """Choose how to do the element-wise part of a step.

    Returns:
        a function of the first row in `gates`, the first row in `kept`, and the number of rows.
    """
    cells = cell.shape[1]
    module = _native_for(gates)
    if module is None:

        def twin(start: int, place: int, size: int) -> None:
            rows = slice(place, place + size)
            activate_gates(
                gates[start : start + size],
                cell[:size],
                _Kept(kept.cell[rows], kept.tanh_cell[rows], kept.unprojected[rows]),
                clip,
            )

        return twin
    # Checked once; a step adds whole rows to the addresses.
    at_gates = _pointer(gates, gates.shape[0], 4 * cells)
    at_cell = _pointer(cell, cell.shape[0], cells)
    at_kept = [_pointer(tensor, tensor.shape[0], cells) for tensor in kept]
    # `row` are the bytes of one row of cells; a row of gates has four times as many.
    bound, row, forward = _bound(clip), 4 * cells, module.lstm_forward

    def native(start: int, place: int, size: int) -> None:
        kept_cell, tanh_cell, unprojected = (at + place * row for at in at_kept)
        forward(
            unprojected,
            at_gates + start * 4 * row,
            at_cell,
            kept_cell,
            tanh_cell,
            bound,
            size,
            cells,
        )

    return native


def activate_gates(now: Tensor, cell: Tensor, kept: _Kept, clip: float | None) -> None:
    """Do the element-wise part of one step; the definition of the kernel.

    Args:
        now: gates of the step, (size, 4 * cells); overwritten by the activated gates.
        cell: (size, cells); overwritten by the new cell.
        kept: receives the new cell, its tanh and the output before the projection.
        clip: bound of the cell.
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


def _differentiation(
    d_gates: Tensor, d_cell: Tensor, gates: Tensor, kept: _Kept, cell0: Tensor, clip: float | None
) -> Callable[[int, int | None, int, Tensor], None]:
    """Choose how to go back through the element-wise part of a step.

    Returns:
        a function of the step's first row, the first row of the step before (None for the first
        step), the number of rows, and the gradient of the output before the projection.
    """
    cells = cell0.shape[1]
    module = _native_for(gates)
    if module is None:

        def twin(start: int, earlier: int | None, size: int, d_unprojected: Tensor) -> None:
            rows = slice(start, start + size)
            before = cell0[:size] if earlier is None else kept.cell[earlier : earlier + size]
            differentiate_gates(
                d_gates[rows],
                d_cell[:size],
                d_unprojected,
                gates[rows],
                _Kept(kept.cell[rows], kept.tanh_cell[rows], kept.unprojected[rows]),
                before,
                clip,
            )

        return twin
    # `row` in bytes, as in `_activation`.
    n_rows, row = gates.shape[0], 4 * cells
    at_d_gates = _pointer(d_gates, n_rows, 4 * cells)
    at_gates = _pointer(gates, n_rows, 4 * cells)
    at_d_cell = _pointer(d_cell, len(d_cell), cells)
    at_cell0 = _pointer(cell0, len(cell0), cells)
    at_cell = _pointer(kept.cell, n_rows, cells)
    at_squashed = _pointer(kept.tanh_cell, n_rows, cells)
    bound, backward = _bound(clip), module.lstm_backward

    def compiled(start: int, earlier: int | None, size: int, d_unprojected: Tensor) -> None:
        backward(
            at_d_gates + start * 4 * row,
            at_d_cell,
            _pointer(d_unprojected, size, cells),
            at_gates + start * 4 * row,
            at_cell + start * row,
            at_squashed + start * row,
            at_cell0 if earlier is None else at_cell + earlier * row,
            bound,
            size,
            cells,
        )

    return compiled


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
        go_back = _differentiation(d_gates, d_cell, gates, kept, cell0.contiguous(), clips.cell)
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
            go_back(start, start - sizes[step - 1] if step else None, size, d_unprojected)
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

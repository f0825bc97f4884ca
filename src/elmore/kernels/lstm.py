"""The recurrent loop of an LSTM with projection and clipping, over a packed batch.

A packed batch holds only real tokens: sentences are sorted by falling length, and step t has
one row for each of the `sizes[t]` sentences that are longer than t. Rows of later steps are thus
a prefix of the rows of earlier ones. The same loop serves both directions; which token stands in
which packed row is the caller's business.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["Clips", "LstmSteps", "lstm_steps"]


class Clips(NamedTuple):
    """Bounds of the cell and of the projected output; None for no bound."""

    cell: float | None
    projection: float | None


class _Kept(NamedTuple):
    """What the backward pass needs of each packed row besides the activated gates."""

    memory: Tensor  # (n_rows, cells), after the clip
    tanh_memory: Tensor  # (n_rows, cells)
    unprojected: Tensor  # (n_rows, cells)


def lstm_steps(
    gates: Tensor,
    sizes: Sequence[int],
    state_weight: Tensor,
    projection: Tensor | None,
    hidden: Tensor,
    memory: Tensor,
    clips: Clips,
    output: Tensor,
    kept: _Kept | None = None,
) -> None:
    """Run some steps (Peters et al. 2018 §3.1; the order of the clips is bilm-tf's LSTMCell).

    Args:
        gates: the inputs' share of the gates with all biases, (n_rows, 4 * cells), in the order
            input, forget, candidate, output; overwritten by the activated gates.
        sizes: rows of each step, never growing; their sum is n_rows.
        state_weight: (4 * cells, dim).
        projection: (dim, cells), or None where the cell's output is used as it is.
        hidden: output before the first step, (batch, dim).
        memory: cell before the first step, (batch, cells); overwritten by each row's last value.
        clips: bounds of cell and projection.
        output: receives the output of each row, (n_rows, dim).
        kept: receives what a backward pass needs.
    """
    cells = memory.shape[1]
    state_matrix = state_weight.t()
    start = 0
    for size in sizes:
        rows = slice(start, start + size)
        start += size
        now = gates[rows]
        now.addmm_(hidden[:size], state_matrix)
        now[:, : 2 * cells].sigmoid_()
        now[:, 2 * cells : 3 * cells].tanh_()
        now[:, 3 * cells :].sigmoid_()
        in_gate, forget_gate, candidate, out_gate = now.chunk(4, dim=1)
        cell = memory[:size]
        cell.mul_(forget_gate).addcmul_(in_gate, candidate)
        if clips.cell is not None:
            cell.clamp_(-clips.cell, clips.cell)
        squashed = torch.tanh(cell)
        if kept is not None:
            kept.memory[rows] = cell
            kept.tanh_memory[rows] = squashed
        hidden = output[rows]
        if projection is None:
            torch.mul(squashed, out_gate, out=hidden)
            continue
        unprojected = squashed.mul_(out_gate)
        if kept is not None:
            kept.unprojected[rows] = unprojected
        torch.mm(unprojected, projection.t(), out=hidden)
        if clips.projection is not None:
            hidden.clamp_(-clips.projection, clips.projection)


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
        memory: Tensor,
        clips: Clips,
    ) -> tuple[Tensor, Tensor]:
        """Give output (n_rows, dim) and last memory (batch, cells); `gates` is used up."""
        n_rows, cells = gates.shape[0], memory.shape[1]
        output = gates.new_empty(n_rows, hidden.shape[1])
        kept = _Kept(
            gates.new_empty(n_rows, cells),
            gates.new_empty(n_rows, cells),
            output if projection is None else gates.new_empty(n_rows, cells),
        )
        last = memory.clone()
        # Autograd must not see the overwriting: whatever made the gates does not need them.
        activated = gates.detach()
        lstm_steps(activated, sizes, state_weight, projection, hidden, last, clips, output, kept)
        ctx.save_for_backward(activated, state_weight, projection, hidden, memory, output, *kept)
        ctx.sizes, ctx.clips = tuple(sizes), clips
        return output, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor, d_last: Tensor) -> tuple[Tensor | None, ...]:
        """Go back through the steps (the derivatives of the equations in `lstm_steps`)."""
        gates, state_weight, projection, hidden0, memory0, output, *rest = ctx.saved_tensors
        kept, sizes, clips = _Kept(*rest), ctx.sizes, ctx.clips
        d_gates = torch.empty_like(gates)
        d_projected = torch.empty_like(output)
        d_hidden = torch.zeros_like(hidden0)  # of the step's own output, through later steps
        d_memory = d_last.clone()
        start = sum(sizes)
        for step in range(len(sizes) - 1, -1, -1):
            size = sizes[step]
            start -= size
            rows = slice(start, start + size)
            d_out = d_projected[rows]
            torch.add(d_output[rows], d_hidden[:size], out=d_out)
            if projection is None:
                d_unprojected = d_out
            else:
                if clips.projection is not None:
                    d_out.mul_(output[rows].abs() < clips.projection)
                d_unprojected = d_out @ projection
            in_gate, forget_gate, candidate, out_gate = gates[rows].chunk(4, dim=1)
            d_in, d_forget, d_candidate, d_out_gate = d_gates[rows].chunk(4, dim=1)
            squashed = kept.tanh_memory[rows]
            d_cell = d_memory[:size]
            d_cell.add_(d_unprojected * out_gate * (1 - squashed * squashed))
            if clips.cell is not None:
                d_cell.mul_(kept.memory[rows].abs() < clips.cell)
            before = memory0[:size] if step == 0 else kept.memory[start - sizes[step - 1] :][:size]
            torch.mul(d_unprojected * squashed, out_gate * (1 - out_gate), out=d_out_gate)
            torch.mul(d_cell * candidate, in_gate * (1 - in_gate), out=d_in)
            torch.mul(d_cell * before, forget_gate * (1 - forget_gate), out=d_forget)
            torch.mul(d_cell * in_gate, 1 - candidate * candidate, out=d_candidate)
            d_cell.mul_(forget_gate)
            torch.mm(d_gates[rows], state_weight, out=d_hidden[:size])
        before_rows = _rows_before(sizes, gates.device)
        first = sizes[0] if sizes else 0
        previous = torch.cat([hidden0[:first], output.index_select(0, before_rows)])
        d_state_weight = d_gates.t() @ previous
        d_matrix = None if projection is None else d_projected.t() @ kept.unprojected
        return d_gates, None, d_state_weight, d_matrix, d_hidden, d_memory, None


def _rows_before(sizes: Sequence[int], device: torch.device) -> Tensor:
    """Find the row of the step before, for every packed row but those of the first step."""
    pieces, start = [], 0
    for size, following in itertools.pairwise(sizes):
        pieces.append(torch.arange(start, start + following))
        start += size
    return (
        torch.cat(pieces).to(device) if pieces else torch.empty(0, dtype=torch.long, device=device)
    )

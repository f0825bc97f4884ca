"""One layer of an LSTM with projection, in one direction."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmore.config import LstmConfig
from elmore.kernels.recurrence import FORGET_BIAS, Clips
from elmore.nn.lstm_steps import LstmSteps, lstm_steps
from elmore.nn.packing import Packing

__all__ = ["ProjectedLstm"]

# Bytes of input gates that are held at once without gradients, so that they stay near the caches
# and memory does not grow with the length of the input.
_GATE_BYTES = 16 << 20
# Up to here the gates of all distinct inputs are made by one matrix product.
_TABLE_BYTES = 256 << 20


class ProjectedLstm(nn.Module):
    """An LSTM layer with projection and clipping over a packed batch.

    The same module serves both directions: the packed rows come in the order in which it should
    read. State goes in and comes out, the module keeps none.
    """

    def __init__(self, config: LstmConfig, layer: int = 0) -> None:
        super().__init__()
        dim, cells = config.state_dim, config.dim
        self.clips = Clips(config.cell_clip, config.proj_clip)
        # Stored transposed in memory: a product with few rows reads (in, out) order up to twice
        # as fast (benchmarks/embed.py), and the shape stays (out, in).
        self.input_weight = nn.Parameter(torch.zeros(config.input_dim(layer), 4 * cells).t())
        self.state_weight = nn.Parameter(torch.zeros(dim, 4 * cells).t())
        self.bias = nn.Parameter(torch.zeros(4 * cells))
        own_projection = config.projected and not config.mixed
        self.projection = nn.Parameter(torch.zeros(cells, dim).t()) if own_projection else None

    def forward(
        self,
        inputs: Tensor,
        rows: Tensor | None,
        packing: Packing,
        hidden: Tensor,
        cell: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read a packed batch.

        Args:
            inputs: vectors, (n_inputs, dim of the input).
            rows: which input each packed row reads, (n_rows,); None if they are in packed order.
            packing: the plan of the batch.
            hidden: output before the first step, (batch, dim), in the packing's row order.
            cell: cell before the first step, (batch, cells), in the same order.

        Returns:
            output in packed order (n_rows, dim); final output (batch, dim) and cell (batch,
            cells), in the packing's row order.
        """
        if torch.is_grad_enabled():
            gates = torch.nn.functional.linear(inputs, self.input_weight, self.full_bias())
            if rows is not None:
                gates = gates.index_select(0, rows)
            output, cell = LstmSteps.apply(  # type: ignore[no-untyped-call]  # torch leaves it so
                gates, packing.sizes, self.state_weight, self.projection, hidden, cell, self.clips
            )
        else:
            output, cell = self._run(inputs, rows, packing, hidden, cell.clone())
        living = packing.last >= 0
        final = output.index_select(0, packing.last[living])
        if len(final) < len(hidden):
            final = torch.cat([final, hidden[len(final) :]])
        return output, final, cell

    def _run(
        self,
        inputs: Tensor,
        rows: Tensor | None,
        packing: Packing,
        hidden: Tensor,
        cell: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Run without gradients, the input gates of a few steps at a time."""
        bias, width = self.full_bias(), len(self.bias)
        n_rows = sum(packing.sizes)
        output = inputs.new_empty(n_rows, hidden.shape[1])
        table = None
        if rows is not None:
            if len(inputs) < n_rows and len(inputs) * width * 4 <= _TABLE_BYTES:
                table = torch.addmm(bias, inputs, self.input_weight.t())
            else:
                inputs, rows = inputs.index_select(0, rows), None
        start = step = 0
        while step < len(packing.sizes):
            budget = max(1, _GATE_BYTES // (width * 4))
            first, size = step, packing.sizes[step]
            step += 1
            while step < len(packing.sizes) and size + packing.sizes[step] <= budget:
                size += packing.sizes[step]
                step += 1
            chunk = slice(start, start + size)
            if table is not None and rows is not None:
                gates = table.index_select(0, rows[chunk])
            else:
                gates = torch.addmm(bias, inputs[chunk], self.input_weight.t())
            lstm_steps(
                gates,
                packing.sizes[first:step],
                self.state_weight,
                self.projection,
                hidden,
                cell,
                self.clips,
                output[chunk],
            )
            start += size
            hidden = output[start - packing.sizes[step - 1] : start]
        return output, cell

    def full_bias(self) -> Tensor:
        """Give the bias with the forget bias that the files leave out, (4 * cells,)."""
        cells = len(self.bias) // 4
        forget = torch.zeros_like(self.bias)
        forget[cells : 2 * cells] = FORGET_BIAS
        return self.bias + forget

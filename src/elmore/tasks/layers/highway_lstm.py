"""A deep LSTM whose layers read in turn forwards and backwards, with highway gates inside."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmore.nn.lstm import Packing

__all__ = ["AlternatingLstm", "HighwayLstm"]


class HighwayLstm(nn.Module):
    """One layer in one direction (Zhang et al. 2016; He et al. 2017).

    r = sigmoid(W_r x + U_r h' + b_r); output = r * o tanh(c) + (1 - r) * W_p x, and the gated
    output is what the next step sees as h'. Six blocks of the input, five of the state.

    Args:
        input_dim: size of an input vector.
        dim: units.
        dropout: on h', one mask for all steps of a sequence.
    """

    def __init__(self, input_dim: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.dim, self.dropout = dim, dropout
        self.input_weight = nn.Parameter(torch.empty(6 * dim, input_dim))
        self.state_weight = nn.Parameter(torch.empty(5 * dim, dim))
        self.bias = nn.Parameter(torch.zeros(5 * dim))
        with torch.no_grad():
            for block in (*self.input_weight.chunk(6), *self.state_weight.chunk(5)):
                nn.init.orthogonal_(block)
            self.bias[dim : 2 * dim] = 1.0  # the forget gate starts open

    def forward(self, rows: Tensor, sizes: tuple[int, ...]) -> Tensor:
        """Read packed rows in the order in which they come.

        Args:
            rows: (n_rows, input_dim).
            sizes: rows of each step, never growing.

        Returns:
            (n_rows, dim).
        """
        dim = self.dim
        if not sizes:
            return rows.new_zeros(0, dim)
        projected = torch.nn.functional.linear(rows, self.input_weight)
        gates = torch.split(projected[:, : 5 * dim] + self.bias, list(sizes))
        carried = torch.split(projected[:, 5 * dim :], list(sizes))
        hidden = memory = rows.new_zeros(sizes[0], dim)
        kept = None
        if self.training and self.dropout:
            kept = torch.empty_like(hidden).bernoulli_(1 - self.dropout) / (1 - self.dropout)
        outputs = []
        state_matrix = self.state_weight.t()
        for size, gate, through in zip(sizes, gates, carried, strict=True):
            hidden, memory = hidden[:size], memory[:size]
            if kept is not None:
                hidden = hidden * kept[:size]
            both = torch.addmm(gate, hidden, state_matrix)
            i, f, o, r = torch.sigmoid(both[:, : 4 * dim]).chunk(4, dim=1)
            memory = f * memory + i * torch.tanh(both[:, 4 * dim :])
            hidden = torch.lerp(through, o * torch.tanh(memory), r)
            outputs.append(hidden)
        return torch.cat(outputs)


class AlternatingLstm(nn.Module):
    """Layers one on the other; the first reads forwards, the second backwards, and so on.

    Args:
        input_dim: size of an input vector.
        dim: units of each layer.
        n_layers: how many.
        dropout: as in `HighwayLstm`.
    """

    def __init__(self, input_dim: int, dim: int, n_layers: int, dropout: float) -> None:
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList(
            HighwayLstm(dim if k else input_dim, dim, dropout) for k in range(n_layers)
        )

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Read a batch, (batch, time, input_dim) to (batch, time, dim); zeros at padding."""
        batch, time, _ = x.shape
        packing = Packing.plan(lengths, time)
        flat = x.flatten(0, 1)
        for k, layer in enumerate(self.layers):
            places = packing.backward if k % 2 else packing.forward
            rows = layer(flat.index_select(0, places), packing.sizes)
            flat = rows.new_zeros(batch * time, self.dim).index_copy(0, places, rows)
        return flat.view(batch, time, self.dim)

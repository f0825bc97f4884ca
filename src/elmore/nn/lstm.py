"""LSTM layers with projection over packed batches, and the one walk over a stack of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from elmore.compute import recurrence as kernels
from elmore.compute.recurrence import FORGET_BIAS, Clips
from elmore.config import LstmConfig
from elmore.nn.charcnn import Affine
from elmore.nn.lstm_steps import LstmSteps, lstm_steps


@dataclass(frozen=True, slots=True)
class Packing:
    """`compute.recurrence.Packing` as tensors on the device of a batch; attributes as there."""

    sizes: tuple[int, ...]
    order: Tensor
    forward: Tensor
    backward: Tensor

    @classmethod
    def plan(cls, lengths: Tensor, time: int) -> Packing:
        """Plan the packed order of sentences with `lengths` (batch,), padded to `time`."""
        plan = kernels.Packing.plan(lengths.cpu().numpy(), time)
        places = (plan.order, plan.forward, plan.backward)
        return cls(plan.sizes, *(torch.from_numpy(part).to(lengths.device) for part in places))


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
        sizes: Sequence[int],
        hidden: Tensor,
        cell: Tensor,
        *,
        rounded: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Read a packed batch, whose rows `inputs[rows]` are; None if they are in packed order.

        `sizes`, `hidden` and `cell` are those of `compute.recurrence.run_steps`. If `rounded`,
        matrix products run in bfloat16.

        Returns:
            output in packed order (n_rows, dim), and the final cell state (batch, cells).
        """
        bfloat16 = torch.autocast(inputs.device.type, dtype=torch.bfloat16)
        with bfloat16 if rounded else contextlib.nullcontext():
            gates = torch.nn.functional.linear(inputs, self.input_weight, self.full_bias())
        if rounded:
            gates = gates.float()
        if rows is not None:
            gates = gates.index_select(0, rows)
        weights = (self.state_weight, self.projection)
        if not torch.is_grad_enabled():  # nothing is kept for a backward pass
            output, cell = gates.new_empty(len(gates), hidden.shape[1]), cell.clone()
            lstm_steps(gates, sizes, *weights, hidden, cell, self.clips, output, rounded=rounded)
            return output, cell
        output, cell = LstmSteps.apply(gates, sizes, *weights, hidden, cell, self.clips, rounded)  # type: ignore[no-untyped-call]  # torch leaves it so
        return output, cell

    def full_bias(self) -> Tensor:
        """The bias with the forget bias that the files leave out, (4 * cells,)."""
        cells = len(self.bias) // 4
        forget = torch.zeros_like(self.bias)
        forget[cells : 2 * cells] = FORGET_BIAS
        return self.bias + forget


def walk(
    layers: Iterable[nn.Module],
    inputs: Tensor,
    rows: Tensor,
    sizes: Sequence[int],
    hidden: Tensor,
    cell: Tensor,
    *,
    skip: bool,
    dropout: Callable[[Tensor], Tensor] | None = None,
    rounded: bool = False,
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Run the layers of one direction, each over the outputs of the one below.

    Args:
        layers: `ProjectedLstm`s, the lowest first.
        inputs: vectors of the distinct words, (n_words, dim).
        rows: word that each packed row reads, (n_rows,).
        sizes: sentences alive at each step.
        hidden: output of each layer before the first step, (layers, batch, dim).
        cell: cell state of each layer before the first step, (layers, batch, cells).
        skip: whether each layer but the first adds its input to its output.
        dropout: applied to the input of each layer.
        rounded: whether matrix products run in bfloat16.

    Returns:
        outputs of each layer in packed order, (n_rows, dim); `hidden` and `cell` after the last
        step of each sentence.
    """
    last = last_rows(sizes, inputs.device)
    gather: Tensor | None = rows
    outputs, finals, cells = [], [], []
    for k, layer in enumerate(layers):
        if dropout is not None:
            # A new mask for every place, so the same words no longer share their gates.
            inputs = dropout(inputs if gather is None else inputs[gather])
            gather = None
        output, after = layer(inputs, gather, sizes, hidden[k], cell[k], rounded=rounded)
        final = output.index_select(0, last)
        if len(final) < hidden.shape[1]:  # sentences without a token keep their state
            final = torch.cat([final, hidden[k, len(final) :]])
        finals.append(final)
        cells.append(after)
        # The sum is neither clipped nor carried: the recurrence does not see it.
        inputs, gather = output + inputs if k > 0 and skip else output, None
        outputs.append(inputs)
    return outputs, torch.stack(finals), torch.stack(cells)


def last_rows(sizes: Sequence[int], device: torch.device | None = None) -> Tensor:
    """The packed row of each sentence's last step, (sizes[0],)."""
    steps = np.array(sizes, np.int64)
    living = np.arange(sizes[0] if len(sizes) else 0)
    # Sizes never grow, so a sentence's length is the number of steps that are wider than its row.
    lengths = len(steps) - np.searchsorted(steps[::-1], living, side="right")
    starts = np.cumsum(steps) - steps
    return torch.from_numpy(starts[lengths - 1] + living).to(device)


def mixed_layers(
    stacks: Iterable[nn.ModuleList],
    projection: Affine,
    vectors: Tensor,
    index: Tensor,
    packing: Packing,
) -> Tensor:
    """Run the `lstm` encoder of ELMoForManyLangs: each layer reads both directions below.

    It starts from zeros and reads each sentence's own tokens. The original runs over the padded
    batch, so that its backward direction begins in the padding. To get that, pass the padding as
    tokens, with full lengths (compat/manylangs.py).

    Args:
        stacks: the layers of the forward and of the backward direction.
        projection: the layer after the last one, for the outputs of both directions.
        vectors: vectors of the distinct words, (n_words, dim).
        index: word of each place, (batch, time).
        packing: the plan of the batch.

    Returns:
        the one layer of output, (batch, time, 2 * projection_dim); zero where a sentence has
        ended.
    """
    batch, time = index.shape
    places = (packing.forward, packing.backward)
    inputs = vectors.index_select(0, index.flatten())  # (batch * time, dim)
    halves: list[Tensor] = []
    for pair in zip(*stacks, strict=True):
        halves = []
        for layer, place in zip(pair, places, strict=True):
            cells = layer.state_weight.shape[1]
            zeros = inputs.new_zeros(batch, cells)
            output, _ = layer(inputs.index_select(0, place), None, packing.sizes, zeros, zeros)
            halves.append(inputs.new_zeros(batch * time, cells).index_copy(0, place, output))
        inputs = torch.cat(halves, dim=1)
    result = inputs.new_zeros(batch * time, 2 * len(projection.bias))
    rows = [projection(half.index_select(0, packing.forward)) for half in halves]
    result = result.index_copy(0, packing.forward, torch.cat(rows, dim=1))
    return result.view(batch, time, -1)

"""The bidirectional language model: every layer of every token in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmore.config import BiLmConfig
from elmore.nn.charcnn import TokenEncoder
from elmore.nn.lstm import ProjectedLstm
from elmore.nn.mixed_lstm import SharedProjection, mixed_layers
from elmore.nn.packing import Packing

__all__ = [
    "BiLm",
    "BiLmState",
    "Layer",
    "Layers",
    "Runner",
    "contextualize",
    "in_turn",
    "read_stretch",
]

_Direction = Callable[[], tuple[list[Tensor], Tensor, Tensor]]
# One LSTM layer: inputs, their packed rows, the plan, output and cell before the first step.
Layer = Callable[[Tensor, Tensor | None, Packing, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
# Runs independent jobs and gives their results in order: in turn, or on threads of their own.
Runner = Callable[[Sequence[_Direction]], list[tuple[list[Tensor], Tensor, Tensor]]]


class Layers(NamedTuple):
    """All layers of a batch.

    Attributes:
        values: (layers, batch, time, dim); layer 0 is the token layer, once for each direction;
            zero where a sentence has ended.
        lengths: tokens of each sentence, (batch,).
    """

    values: Tensor
    lengths: Tensor


class BiLmState(NamedTuple):
    """Where the LSTMs stand between two batches.

    Attributes:
        hidden: output of each layer, (directions, layers, batch, projection_dim).
        cell: cell state of each layer, (directions, layers, batch, cells).
    """

    hidden: Tensor
    cell: Tensor


def in_turn(jobs: Sequence[_Direction]) -> list[tuple[list[Tensor], Tensor, Tensor]]:
    """Run jobs one after the other in the calling thread."""
    return [job() for job in jobs]


class BiLm(nn.Module):
    """Forward and backward LSTM language models over one token layer (Peters et al. 2018, §3.1).

    The parameters carry the names and shapes of `config.weight_shapes`. No state is kept between
    calls: it goes in and comes out.
    """

    def __init__(self, config: BiLmConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = TokenEncoder(config)
        for direction in config.directions:
            layers = nn.ModuleList(
                ProjectedLstm(config.lstm, k) for k in range(config.lstm.n_layers)
            )
            setattr(self, f"{direction}_layers", layers)
        if config.lstm.mixed:
            self.projection = SharedProjection(config.lstm)

    def zero_state(self, batch: int) -> BiLmState:
        """Make the state before any text, for `batch` sentences."""
        lstm, some = self.config.lstm, next(self.parameters())
        shape = (len(self.config.directions), lstm.n_layers, batch)
        return BiLmState(
            some.new_zeros(*shape, lstm.projection_dim), some.new_zeros(*shape, lstm.dim)
        )

    def forward(
        self,
        words: Tensor | None,
        index: Tensor,
        lengths: Tensor,
        state: BiLmState | None = None,
        word_ids: Tensor | None = None,
    ) -> tuple[Layers, BiLmState]:
        """Read a batch.

        Args:
            words: character ids of the distinct words, (n_words, chars), or None.
            index: word of each place, (batch, time).
            lengths: tokens of each sentence, markers included, (batch,).
            state: where to start; zeros if not given.
            word_ids: rows of the distinct words in the word table, (n_words,), or None.

        Returns:
            all layers, and the state after each sentence's last token.
        """
        return self.contextualize(self.tokens(words, word_ids), index, lengths, state)

    def contextualize(
        self,
        vectors: Tensor,
        index: Tensor,
        lengths: Tensor,
        state: BiLmState | None = None,
        run: Runner = in_turn,
    ) -> tuple[Layers, BiLmState]:
        """Run the LSTMs over ready token vectors.

        Args:
            vectors: vectors of the distinct words, (n_words, projection_dim).
            index: word of each place, (batch, time).
            lengths: tokens of each sentence, (batch,).
            state: where to start; zeros if not given.
            run: how to run the directions, which do not depend on each other.

        Returns:
            as `forward`.
        """
        layers = [getattr(self, f"{direction}_layers") for direction in self.config.directions]
        if state is None:
            state = self.zero_state(len(index))
        if self.config.lstm.mixed:  # it keeps no state, so what comes in goes out
            packing = Packing.plan(lengths, index.shape[1])
            stacks = (self.forward_layers, self.backward_layers)
            mixed = mixed_layers(stacks, self.projection, vectors, index, packing)
            return Layers(mixed[None], lengths), state
        return contextualize(self.config, layers, vectors, index, lengths, state, run)

    def read_on(
        self, direction: int, inputs: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read a stretch of one sequence in one direction, as `read_stretch`."""
        layers: Sequence[Layer] = getattr(self, f"{self.config.directions[direction]}_layers")
        return read_stretch(self.config, layers, inputs, hidden, cell)


def contextualize(
    config: BiLmConfig,
    layers: Sequence[Sequence[Layer]],
    vectors: Tensor,
    index: Tensor,
    lengths: Tensor,
    state: BiLmState,
    run: Runner,
) -> tuple[Layers, BiLmState]:
    """Run LSTM layers of each direction over ready token vectors, as `BiLm.contextualize`."""
    batch, time = index.shape
    packing = Packing.plan(lengths, time)
    hidden = _take(state.hidden, packing.order)
    cell = _take(state.cell, packing.order)
    flat = index.flatten()
    places = [packing.forward, packing.backward][: len(layers)]
    skip = config.lstm.skip_connections
    jobs = [
        _job(stack, vectors, flat.index_select(0, place), packing, hidden[k], cell[k], skip)
        for k, (stack, place) in enumerate(zip(layers, places, strict=True))
    ]
    done = run(jobs)
    back = torch.argsort(packing.order)
    final = BiLmState(
        _take(torch.stack([result[1] for result in done]), back),
        _take(torch.stack([result[2] for result in done]), back),
    )
    halves = [
        _unpack([vectors.index_select(0, flat[place]), *result[0]], place, batch * time)
        for place, result in zip(places, done, strict=True)
    ]
    values = torch.cat(halves, dim=2).view(config.n_layers, batch, time, -1)
    return Layers(values, lengths), final


def read_stretch(
    config: BiLmConfig, layers: Sequence[Layer], inputs: Tensor, hidden: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Read a stretch of one sequence in one direction, going on from a state.

    Args:
        config: the shape of the model.
        layers: of the direction.
        inputs: token vectors in the order of reading, (time, projection_dim).
        hidden: output of each layer before the stretch, (layers, 1, projection_dim).
        cell: cells of each layer before it, (layers, 1, cells).

    Returns:
        outputs of the layers, (layers, time, projection_dim), and hidden and cell after it.
    """
    packing = Packing.plan(torch.tensor([len(inputs)], device=inputs.device), len(inputs))
    skip = config.lstm.skip_connections
    outputs, hidden, cell = _job(layers, inputs, packing.forward, packing, hidden, cell, skip)()
    return torch.stack(outputs), hidden, cell


def _job(
    layers: Sequence[Layer],
    vectors: Tensor,
    rows: Tensor,
    packing: Packing,
    hidden: Tensor,
    cell: Tensor,
    skip: bool,
) -> _Direction:
    """Make the job of one direction; `hidden` and `cell` are (layers, batch, ...)."""
    gradients = torch.is_grad_enabled()

    def job() -> tuple[list[Tensor], Tensor, Tensor]:
        # The grad mode is a thread's own: a worker must be told.
        with torch.set_grad_enabled(gradients):
            inputs = vectors
            outputs: list[Tensor] = []
            finals: list[Tensor] = []
            cells_after: list[Tensor] = []
            for k, layer in enumerate(layers):
                output, final, last = layer(
                    inputs, rows if k == 0 else None, packing, hidden[k], cell[k]
                )
                # The sum is neither clipped nor carried: it leaves the recurrence alone.
                if k > 0 and skip:
                    output = output + inputs
                outputs.append(output)
                finals.append(final)
                cells_after.append(last)
                inputs = output
            return outputs, torch.stack(finals), torch.stack(cells_after)

    return job


def _take(states: Tensor, order: Tensor) -> Tensor:
    """Put the sentences of (directions, layers, batch, ...) into another order."""
    return states if len(order) == 1 else states.index_select(2, order)


def _unpack(packed: Sequence[Tensor], place: Tensor, size: int) -> Tensor:
    """Put packed rows where they belong, (layers, size, dim); zeros elsewhere."""
    rows = torch.stack(list(packed))
    return rows.new_zeros(rows.shape[0], size, rows.shape[2]).index_copy(1, place, rows)

"""The bidirectional language model: every layer of every token in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from elmore.compute.initial_weights import initial_weights
from elmore.config import BiLmConfig
from elmore.nn.charcnn import TokenEncoder
from elmore.nn.lstm import Packing, ProjectedLstm, SharedProjection, mixed_layers, walk

__all__ = ["BiLm", "BiLmState", "Layers", "first_rows", "initialise", "store_rows"]


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
    """The state of the LSTMs between two batches.

    Attributes:
        hidden: output of each layer, (directions, layers, batch, projection_dim).
        cell: cell state of each layer, (directions, layers, batch, cells).
    """

    hidden: Tensor
    cell: Tensor


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
            # By name and not in a ModuleDict: parameters are called as in `config.weight_shapes`.
            setattr(self, f"{direction}_layers", layers)
        if config.lstm.mixed:
            self.projection = SharedProjection(config.lstm)

    def layers(self, direction: int) -> nn.ModuleList:
        """The LSTM layers of a direction: 0 forward, 1 backward."""
        layers: nn.ModuleList = getattr(self, f"{self.config.directions[direction]}_layers")
        return layers

    def zero_state(self, batch: int) -> BiLmState:
        """The state before any text, for `batch` sentences."""
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
        self, vectors: Tensor, index: Tensor, lengths: Tensor, state: BiLmState | None = None
    ) -> tuple[Layers, BiLmState]:
        """Run the LSTMs over ready token vectors.

        Args:
            vectors: vectors of the distinct words, (n_words, projection_dim).
            index: word of each place, (batch, time).
            lengths: tokens of each sentence, (batch,).
            state: where to start; zeros if not given.

        Returns:
            as `forward`.
        """
        batch, time = index.shape
        packing = Packing.plan(lengths, time)
        if state is None:
            state = self.zero_state(batch)
        if self.config.lstm.mixed:  # it keeps no state, so what comes in goes out
            stacks = (self.layers(0), self.layers(1))
            mixed = mixed_layers(stacks, self.projection, vectors, index, packing)
            return Layers(mixed[None], lengths), state
        hidden, cell = (_reordered(part, packing.order) for part in state)
        flat = index.flatten()
        halves, ends = [], []
        places = (packing.forward, packing.backward)
        for d in range(len(self.config.directions)):
            rows = flat.index_select(0, places[d])
            outputs, *end = self._walk(d, vectors, rows, packing.sizes, hidden[d], cell[d])
            packed = [vectors.index_select(0, rows), *outputs]
            halves.append(_unpack(packed, places[d], batch * time))
            ends.append(end)
        back = torch.argsort(packing.order)
        final = (_reordered(torch.stack(part), back) for part in zip(*ends, strict=True))
        values = torch.cat(halves, dim=2).view(self.config.n_layers, batch, time, -1)
        return Layers(values, lengths), BiLmState(*final)

    def _walk(
        self,
        direction: int,
        inputs: Tensor,
        rows: Tensor,
        sizes: Sequence[int],
        hidden: Tensor,
        cell: Tensor,
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        skip = self.config.lstm.skip_connections
        return walk(self.layers(direction), inputs, rows, sizes, hidden, cell, skip=skip)


def initialise(bilm: BiLm, generator: np.random.Generator) -> None:
    """Fill all weights of a biLM with `initial_weights`; `generator` is the only randomness."""
    weights = initial_weights(bilm.config, generator)
    with torch.no_grad():
        for name, parameter in bilm.named_parameters():
            parameter.copy_(torch.from_numpy(weights[name]))


def _reordered(states: Tensor, order: Tensor) -> Tensor:
    """Put the sentences of (directions, layers, batch, ...) into another order."""
    return states if len(order) == 1 else states.index_select(2, order)


def _unpack(packed: Sequence[Tensor], place: Tensor, size: int) -> Tensor:
    """Put packed rows where they belong, (layers, size, dim); zeros elsewhere."""
    rows = torch.stack(list(packed))
    return rows.new_zeros(rows.shape[0], size, rows.shape[2]).index_copy(1, place, rows)


# --------------------------------------------------------------------------- carried state
# The published programs carry the state from batch to batch, row by row. A smaller batch uses the
# first rows and leaves the others alone; a larger one adds fresh rows.


def first_rows(kept: BiLmState | None, rows: int, fresh: Callable[[int], BiLmState]) -> BiLmState:
    """The state in which the first rows of a batch start; `fresh` makes that of new rows."""
    if kept is None:
        return fresh(rows)
    known = kept.hidden.shape[2]
    if known < rows:
        new = fresh(rows - known)
        kept = BiLmState(*(torch.cat(pair, dim=2) for pair in zip(kept, new, strict=True)))
    return BiLmState(kept.hidden[:, :, :rows], kept.cell[:, :, :rows])


def store_rows(kept: BiLmState | None, after: BiLmState) -> BiLmState:
    """The state of all rows: `after` for those of the batch, `kept` for the others."""
    rows = after.hidden.shape[2]
    if kept is None or kept.hidden.shape[2] <= rows:
        return after
    pairs = zip(after, kept, strict=True)
    return BiLmState(*(torch.cat([new, old[:, :, rows:]], dim=2) for new, old in pairs))

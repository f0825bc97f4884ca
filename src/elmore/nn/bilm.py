"""The bidirectional language model: every layer of every token in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from elmore.compute.initial_weights import initial_weights
from elmore.config import BiLmConfig
from elmore.errors import ConfigError
from elmore.nn.charcnn import Affine, TokenEncoder
from elmore.nn.lstm import Packing, ProjectedLstm, mixed_layers, walk
from elmore.text.batching import Batch


class BiLmState(NamedTuple):
    """`compute.network.LstmState` as tensors; attributes as there."""

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
            self.projection = Affine(config.lstm.projection_dim, config.lstm.dim)

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
    ) -> tuple[Tensor, BiLmState]:
        """Read a batch.

        Args:
            words: character ids of the distinct words, (n_words, chars), or None.
            index: word of each place, (batch, time).
            lengths: tokens of each sentence, markers included, (batch,).
            state: where to start; zeros if not given.
            word_ids: rows of the distinct words in the word table, (n_words,), or None.

        Returns:
            all layers, (layers, batch, time, dim), of which layer 0 is the token layer, once for
            each direction, zero where a sentence has ended; and the state after each sentence's
            last token.
        """
        return self.contextualize(self.tokens(words, word_ids), index, lengths, state)

    def contextualize(
        self, vectors: Tensor, index: Tensor, lengths: Tensor, state: BiLmState | None = None
    ) -> tuple[Tensor, BiLmState]:
        """Run the LSTMs over ready token vectors, as `BiLmArrays.contextualize`."""
        batch, time = index.shape
        packing = Packing.plan(lengths, time)
        if state is None:
            state = self.zero_state(batch)
        if self.config.lstm.mixed:  # it keeps no state, so what comes in goes out
            stacks = (self.layers(0), self.layers(1))
            mixed = mixed_layers(stacks, self.projection, vectors, index, packing)
            return mixed[None], state
        hidden, cell = (_reordered(part, packing.order) for part in state)
        flat = index.flatten()
        halves, ends = [], []
        places = (packing.forward, packing.backward)
        for d in range(len(self.config.directions)):
            rows = flat.index_select(0, places[d])
            skip = self.config.lstm.skip_connections
            state_d = (hidden[d], cell[d])
            outputs, *end = walk(self.layers(d), vectors, rows, packing.sizes, *state_d, skip=skip)
            packed = [vectors.index_select(0, rows), *outputs]
            halves.append(_unpack(packed, places[d], batch * time))
            ends.append(end)
        back = torch.argsort(packing.order)
        final = (_reordered(torch.stack(part), back) for part in zip(*ends, strict=True))
        values = torch.cat(halves, dim=2).view(self.config.n_layers, batch, time, -1)
        return values, BiLmState(*final)


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


# --------------------------------------------------------------------------- from arrays


@dataclass(frozen=True, slots=True)
class TensorBatch:
    """A `text.batching.Batch` as tensors; attributes as there.

    Attributes:
        shape: leading dimensions of the input; (batch,) for a plain list of sentences.
    """

    words: Tensor | None
    word_ids: Tensor | None
    index: Tensor
    lengths: Tensor
    shape: tuple[int, ...]

    @classmethod
    def from_batch(cls, batch: Batch, device: torch.device | str = "cpu") -> TensorBatch:
        """Move the arrays of a batch to a device."""
        return cls(
            words=ids_of(batch.words, device),
            word_ids=ids_of(batch.word_ids, device),
            index=torch.from_numpy(batch.index).to(device),
            lengths=torch.from_numpy(batch.lengths).to(device),
            shape=(len(batch.lengths),),
        )

    @classmethod
    def from_character_ids(
        cls, ids: Tensor, markers: Tensor, *, marked: bool = False
    ) -> TensorBatch:
        """Find the distinct words of ready character ids, and put each row between markers.

        Args:
            ids: (..., time, chars), shifted by one so that a row of zeros is padding.
            markers: character ids of the tokens that open and close a sentence, (2, chars).
            marked: whether each row of `ids` is between markers already.
        """
        if ids.dim() < 3 or ids.shape[-1] != markers.shape[1]:
            raise ConfigError(
                f"character ids of shape {tuple(ids.shape)}; expected (..., time, "
                f"{markers.shape[1]})"
            )
        flat = ids.flatten(0, -3).long()
        real = (flat > 0).any(dim=-1)
        lengths = real.sum(dim=1)
        batch, time = real.shape
        # Lengths alone say where a sentence ends, so nothing may be missing in the middle.
        if not torch.equal(real, torch.arange(time, device=ids.device) < lengths[:, None]):
            raise ConfigError("padding before the end of a sentence; put rows of zeros last")
        distinct, where = torch.unique(
            torch.cat([markers.to(flat), flat[real]]), dim=0, return_inverse=True
        )
        # The markers came first: `where[:2]` are their places, `where[2:]` those of the words.
        if marked:
            index = where.new_zeros(batch, time)
            index[real] = where[2:]
        else:
            index = where.new_zeros(batch, time + 2)
            index[:, 0] = where[0]
            index[:, 1:-1][real] = where[2:]
            index.scatter_(1, lengths[:, None] + 1, where[1].expand(batch, 1))
            lengths = lengths + 2
        return cls(distinct, None, index, lengths, ids.shape[:-2])

    @property
    def mask(self) -> Tensor:
        """Which places hold a token of the sentence, markers left out, (*shape, time - 2)."""
        inner = self.index.shape[1] - 2
        places = torch.arange(inner, device=self.lengths.device)
        return (places < self.lengths[:, None] - 2).view(*self.shape, inner)

    def to(self, device: torch.device | str) -> TensorBatch:
        """Move all tensors to a device."""
        words, word_ids = ids_of(self.words, device), ids_of(self.word_ids, device)
        index, lengths = self.index.to(device), self.lengths.to(device)
        return TensorBatch(words, word_ids, index, lengths, self.shape)


def ids_of(array: object, device: torch.device | str) -> Tensor | None:
    """Ids as a tensor that indexes others."""
    return None if array is None else torch.as_tensor(array).long().to(device)

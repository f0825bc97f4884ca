"""AllenNLP's `ElmoLstm`: stateful, as it always was there."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from elmore.compat.allennlp.layouts import keep_allennlp_layout
from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig
from elmore.errors import ConfigError
from elmore.nn.bilm import BiLm, BiLmState, Layers, first_rows, initialise, store_rows

__all__ = ["ElmoLstm"]

States = tuple[Tensor, Tensor]


class ElmoLstm(nn.Module):
    """Two stacks of LSTMs with projection, whose state goes on from call to call.

    Row k of a batch starts where row k of the last one ended. `stateful = False` starts every
    batch from zeros; `_states` is None or (hidden (layers, rows, 2 * dim), cell (layers, rows,
    2 * cells)), the forward half first, and may be set.

    Args:
        input_size: size of the vectors that come in; must be `hidden_size`, as in every ELMo.
        hidden_size: size of one direction's output.
        cell_size: cells of a layer.
        num_layers: number of layers.
        requires_grad: whether it learns.
        recurrent_dropout_probability: must be 0; ELMo never used it.
        memory_cell_clip_value: bound of the cells.
        state_projection_clip_value: bound of the output.
        generator: source of the first weights; a fixed one by default.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        cell_size: int,
        num_layers: int,
        requires_grad: bool = False,
        recurrent_dropout_probability: float = 0.0,
        memory_cell_clip_value: float | None = None,
        state_projection_clip_value: float | None = None,
        generator: np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        if input_size != hidden_size:
            raise ConfigError(
                f"input_size={input_size} but hidden_size={hidden_size}; ELMo's are the same, use "
                "a projection before it"
            )
        if recurrent_dropout_probability:
            raise ConfigError(
                f"recurrent_dropout_probability={recurrent_dropout_probability} is not offered; "
                "use 0, as every published ELMo does"
            )
        config = BiLmConfig(
            tokens=TokenEncoderConfig(n_words=1, word_dim=input_size, projected=False),
            lstm=LstmConfig(
                dim=cell_size,
                projection_dim=hidden_size,
                n_layers=num_layers,
                cell_clip=memory_cell_clip_value or None,
                proj_clip=state_projection_clip_value or None,
            ),
        )
        bilm = BiLm(config)
        initialise(bilm, generator or np.random.default_rng(0))
        self._hold(bilm, requires_grad)

    @classmethod
    def of(cls, bilm: BiLm, requires_grad: bool) -> ElmoLstm:
        """Make one that shares the LSTMs of a biLM which is there already."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made._hold(bilm, requires_grad)
        return made

    def _hold(self, bilm: BiLm, requires_grad: bool) -> None:
        # In a tuple: its token layer must not be a part of this module.
        self._bilm = (bilm,)
        for direction in bilm.config.directions:
            layers: nn.ModuleList = getattr(bilm, f"{direction}_layers")
            setattr(self, f"{direction}_layers", layers.requires_grad_(requires_grad))
        lstm = bilm.config.lstm
        self.input_size = self.hidden_size = lstm.projection_dim
        self.cell_size, self.num_layers = lstm.dim, lstm.n_layers
        self.requires_grad = requires_grad
        self.stateful = True
        self._states: States | None = None
        keep_allennlp_layout(self)

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Run over vectors.

        Args:
            inputs: (batch, time, dim).
            mask: which places are real, (batch, time); the first ones of each row.

        Returns:
            (layers, batch, time, 2 * dim); zero where a row has ended.
        """
        batch, time = mask.shape
        index = torch.arange(batch * time, device=inputs.device).view(batch, time)
        vectors = inputs.reshape(batch * time, -1)
        return self.run(vectors, index, mask.sum(dim=1)).values[1:]

    def run(self, vectors: Tensor, index: Tensor, lengths: Tensor) -> Layers:
        """Run over the distinct vectors of a batch, as `BiLm.contextualize`; carry the state."""
        bilm, rows = self._bilm[0], len(lengths)
        kept = self._kept()
        before = first_rows(kept, rows, bilm.zero_state)
        layers, after = bilm.contextualize(vectors, index, lengths, before)
        if self.stateful:
            stored = store_rows(kept, BiLmState(after.hidden.detach(), after.cell.detach()))
            self._states = (
                torch.cat(list(stored.hidden), dim=-1),
                torch.cat(list(stored.cell), dim=-1),
            )
        return layers

    def reset_states(self, mask: Tensor | None = None) -> None:
        """Forget the state of all rows, or of those that a mask of shape (rows,) marks."""
        if mask is None:
            self._states = None
        elif self._states is not None:
            rows = self._states[0].shape[1]
            if mask.shape[0] != rows:
                raise ConfigError(
                    f"a mask of {mask.shape[0]} rows for the state of {rows}; give one for each"
                )
            forget = mask.bool().view(1, rows, 1)
            hidden, cell = (part.masked_fill(forget, 0) for part in self._states)
            self._states = (hidden, cell)

    def _kept(self) -> BiLmState | None:
        if not self.stateful or self._states is None:
            return None
        some = next(self.parameters())
        parts = len(self._bilm[0].config.directions)
        hidden, cell = (torch.stack(part.to(some).chunk(parts, dim=-1)) for part in self._states)
        return BiLmState(hidden, cell)

"""AllenNLP's `ElmoLstm` and `_ElmoBiLm`, which carry their state from call to call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from elmore.compat.allennlp.character_encoder import _ElmoCharacterEncoder, keep_allennlp_layout
from elmore.compat.allennlp.character_ids import FileName, read_files
from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig
from elmore.embedding.torch_network import build_bilm
from elmore.errors import ConfigError
from elmore.formats.checkpoint import Checkpoint
from elmore.nn.bilm import BiLm, BiLmState, Layers, first_rows, initialise, store_rows

__all__ = ["BiLmOutput", "ElmoLstm", "_ElmoBiLm"]

States = tuple[Tensor, Tensor]


class ElmoLstm(nn.Module):
    """Two stacks of LSTMs with projection, whose state is carried from call to call.

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
        # Each place counts as a distinct word: the vectors come from outside and may all
        # differ.
        index = torch.arange(batch * time, device=inputs.device).view(batch, time)
        vectors = inputs.reshape(batch * time, -1)
        return self.run(vectors, index, mask.sum(dim=1)).values[1:]

    def run(self, vectors: Tensor, index: Tensor, lengths: Tensor) -> Layers:
        """Run over the distinct vectors of a batch, as `BiLm.contextualize`; carry the state."""
        bilm, rows = self._bilm[0], len(lengths)
        kept = self._kept()
        # A batch may have fewer or more rows than the last one: missing rows start from
        # zeros.
        before = first_rows(kept, rows, bilm.zero_state)
        layers, after = bilm.contextualize(vectors, index, lengths, before)
        if self.stateful:
            # Detached, as in AllenNLP: gradients never reach back into an earlier
            # batch.
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
        # AllenNLP keeps both directions side by side in the last axis; ours are separate.
        parts = len(self._bilm[0].config.directions)
        hidden, cell = (torch.stack(part.to(some).chunk(parts, dim=-1)) for part in self._states)
        return BiLmState(hidden, cell)


_LOGGER = logging.getLogger(__name__)


class BiLmOutput(TypedDict):
    """For each layer (batch, time + 2, dim), and which places are real, (batch, time + 2)."""

    activations: list[Tensor]
    mask: Tensor


class _ElmoBiLm(nn.Module):
    """A biLM that carries its state from call to call.

    `vocab_to_cache` are words whose token layer is computed once; the first means padding. Their
    ids, passed as `word_inputs`, then replace the characters.
    """

    def __init__(
        self,
        options_file: FileName,
        weight_file: FileName,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        checkpoint = read_files(options_file, weight_file)
        # One set of weights, seen by two modules with AllenNLP's names, so that its state
        # dicts load.
        bilm = build_bilm(checkpoint)
        self._token_embedder = _ElmoCharacterEncoder.of(
            bilm.tokens, checkpoint.alphabet, requires_grad
        )
        self._elmo_lstm = ElmoLstm.of(bilm, requires_grad)
        self._requires_grad = requires_grad
        self._word_embedding: nn.Embedding | None = None
        if vocab_to_cache:
            if requires_grad:
                _LOGGER.warning(
                    "cached words learn on their own and no longer by their characters; leave "
                    "vocab_to_cache out while fine-tuning"
                )
            self._cache(checkpoint, vocab_to_cache)
        self.num_layers = checkpoint.config.n_layers
        self._dim = checkpoint.config.dim

    def get_output_dim(self) -> int:
        """Size of a vector, both directions."""
        return self._dim

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> BiLmOutput:
        """All layers of a batch.

        Args:
            inputs: character ids, (batch, time, 50).
            word_inputs: ids of cached words, (batch, time), 0 for padding. A batch with a word
                beyond the cache is read by its characters.
        """
        # Without anything to learn, no graph is made, and the LSTMs run their fast way.
        learns = any(parameter.requires_grad for parameter in self.parameters())
        with torch.set_grad_enabled(torch.is_grad_enabled() and learns):
            cached = self._word_embedding
            if (
                cached is not None
                and word_inputs is not None
                and bool((word_inputs < cached.num_embeddings).all())
            ):
                layers = self._run_words(cached, word_inputs)
            else:
                batch = self._token_embedder.batch(inputs)
                vectors = self._token_embedder.vectors(batch)
                layers = self._elmo_lstm.run(vectors, batch.index, batch.lengths)
        places = torch.arange(layers.values.shape[2], device=layers.values.device)
        return {"activations": list(layers.values), "mask": places < layers.lengths[:, None]}

    def _cache(self, checkpoint: Checkpoint, words: Sequence[str]) -> None:
        alphabet = checkpoint.alphabet
        if alphabet is None:
            return
        ids = torch.from_numpy(alphabet.encode([*alphabet.markers, *words])).long()
        with torch.no_grad():
            vectors = self._token_embedder.encoder(ids)
        vectors[2] = 0  # the padding, which no LSTM ever sees
        cached = nn.Embedding(len(words), vectors.shape[1], _weight=vectors[2:].clone())
        self._word_embedding = cached.requires_grad_(self._requires_grad)
        # A buffer, so that it moves with the module; not saved, because AllenNLP's state
        # dicts lack it.
        self.register_buffer("_marker_vectors", vectors[:2].clone(), persistent=False)

    def _run_words(self, cached: nn.Embedding, word_inputs: Tensor) -> Layers:
        """Run over cached words; the markers' vectors come first in the table, then the words'."""
        lengths = (word_inputs > 0).sum(dim=1)
        batch, time = word_inputs.shape
        index = word_inputs.new_zeros(batch, time + 2)
        index[:, 1:-1] = word_inputs + 2
        index.scatter_(1, lengths[:, None] + 1, 1)
        vectors = torch.cat([self.get_buffer("_marker_vectors"), cached.weight])
        return self._elmo_lstm.run(vectors, index, lengths + 2)

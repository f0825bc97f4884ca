"""AllenNLP's `_ElmoCharacterEncoder`, `ElmoLstm` and `_ElmoBiLm`, with its state dicts.

State is carried from call to call. In AllenNLP's state dicts a highway gate has the other sign, the
forget bias of 1 is inside the bias, and the character table has a row of zeros in front (its
modules elmo, highway, lstm_cell_with_projection).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, cast

import numpy as np
import torch
from torch import Tensor, nn

from elmore.compat.allennlp.embedder import FileName, read_files
from elmore.compute.recurrence import FORGET_BIAS
from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig
from elmore.embedding.torch_network import build_bilm
from elmore.errors import ConfigError
from elmore.nn.bilm import BiLm, BiLmState, TensorBatch, first_rows, initialise, store_rows
from elmore.text.characters import Alphabet

States = tuple[Tensor, Tensor]
_LOGGER = logging.getLogger(__name__)


class _ElmoCharacterEncoder(nn.Module):
    """The token layer of a biLM, read from two files, or of one that is there already (`of`)."""

    def __init__(
        self,
        options_file: FileName,
        weight_file: FileName,
        requires_grad: bool = False,
        *,
        of: tuple[BiLm, Alphabet] | None = None,
    ) -> None:
        super().__init__()
        if of is None:
            checkpoint, alphabet = read_files(options_file, weight_file)
            of = build_bilm(checkpoint), alphabet
        bilm, alphabet = of
        self.encoder = bilm.tokens.requires_grad_(requires_grad)
        self.requires_grad = requires_grad
        markers = torch.from_numpy(alphabet.encode(alphabet.markers)).long()
        # Not saved: it follows from the alphabet, and AllenNLP's state dicts do not have it.
        self.register_buffer("_markers", markers, persistent=False)
        _keep_allennlp_layout(self)

    def get_output_dim(self) -> int:
        """Size of a vector."""
        projection = self.encoder.projection
        return self.encoder.config.n_features if projection is None else len(projection.bias)

    def batch(self, inputs: Tensor) -> TensorBatch:
        """Find the distinct words of character ids, (batch, time, 50), and add the markers."""
        return TensorBatch.from_character_ids(inputs, self.get_buffer("_markers"))

    def vectors(self, batch: TensorBatch) -> Tensor:
        """The vectors of the distinct words of a batch, (n_words, dim)."""
        words = batch.words
        if words is None or not (words == 0).any():
            return cast(Tensor, self.encoder(words))
        # AllenNLP's table has a row of zeros for id 0, which no text leads to but made-up ids do.
        # The encoder's table has none: such words are read with one more character at its end.
        more = _with_zeros(self.encoder.characters, 0, 1)
        words = words.masked_fill(words == 0, len(more))
        learns = torch.is_grad_enabled()
        with torch.enable_grad():  # the way without gradients keeps tables of the plain size
            vectors = torch.func.functional_call(self.encoder, {"characters": more}, (words,))
        return cast(Tensor, vectors if learns else vectors.detach())

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """The vectors of character ids, (batch, time, 50), with both markers.

        `token_embedding` is (batch, time + 2, dim), zero where a sentence has ended, and `mask`
        (batch, time + 2).
        """
        batch = self.batch(inputs)
        mask = _mask(batch.lengths, batch.index.shape[1])
        vectors = self.vectors(batch)[batch.index]
        return {"mask": mask, "token_embedding": vectors * mask[:, :, None]}


class ElmoLstm(nn.Module):
    """Two stacks of LSTMs with projection, whose state is carried from call to call.

    Row k of a batch starts where row k of the last one ended. `stateful = False` starts every
    batch from zeros; `_states` is None or (hidden (layers, rows, 2 * dim), cell (layers, rows,
    2 * cells)), the forward half first, and may be set. As in every ELMo, `input_size` is
    `hidden_size` and there is no recurrent dropout. `of` is a biLM whose LSTMs it shares; without
    one the weights are random.
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
        *,
        of: BiLm | None = None,
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
        if of is None:
            lstm = LstmConfig(
                dim=cell_size,
                projection_dim=hidden_size,
                n_layers=num_layers,
                cell_clip=memory_cell_clip_value or None,
                proj_clip=state_projection_clip_value or None,
            )
            tokens = TokenEncoderConfig(n_words=1, word_dim=input_size, projected=False)
            of = BiLm(BiLmConfig(tokens=tokens, lstm=lstm))
            initialise(of, np.random.default_rng(0))
        # In a tuple: its token layer must not be a part of this module.
        self._bilm = (of,)
        for direction in of.config.directions:
            layers: nn.ModuleList = getattr(of, f"{direction}_layers")
            setattr(self, f"{direction}_layers", layers.requires_grad_(requires_grad))
        self.input_size, self.hidden_size = input_size, hidden_size
        self.cell_size, self.num_layers = cell_size, num_layers
        self.requires_grad = requires_grad
        self.stateful = True
        self._states: States | None = None
        _keep_allennlp_layout(self)

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Run over vectors, (batch, time, dim).

        `mask` (batch, time) says which are real: the first ones of each row.

        Returns:
            (layers, batch, time, 2 * dim); zero where a row has ended.
        """
        batch, time = mask.shape
        # Each place counts as a distinct word: the vectors come from outside and may all differ.
        index = torch.arange(batch * time, device=inputs.device).view(batch, time)
        vectors = inputs.reshape(batch * time, -1)
        return self.run(vectors, index, mask.sum(dim=1))[1:]

    def run(self, vectors: Tensor, index: Tensor, lengths: Tensor) -> Tensor:
        """Run over the distinct vectors of a batch, as `BiLm.contextualize`; carry the state."""
        bilm = self._bilm[0]
        kept = self._kept()
        # A batch may have fewer or more rows than the last one: missing rows start from zeros.
        before = first_rows(kept, len(lengths), bilm.zero_state)
        layers, after = bilm.contextualize(vectors, index, lengths, before)
        if self.stateful:
            # Detached, as in AllenNLP: gradients never reach back into an earlier batch.
            stored = store_rows(kept, BiLmState(after.hidden.detach(), after.cell.detach()))
            self._states = (torch.cat([*stored.hidden], dim=-1), torch.cat([*stored.cell], dim=-1))
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
        checkpoint, alphabet = read_files(options_file, weight_file)
        # One set of weights, seen by two modules with AllenNLP's names, so that its state dicts
        # load.
        bilm, lstm = build_bilm(checkpoint), checkpoint.config.lstm
        self._token_embedder = _ElmoCharacterEncoder(
            options_file, weight_file, requires_grad, of=(bilm, alphabet)
        )
        dim = lstm.projection_dim
        self._elmo_lstm = ElmoLstm(dim, dim, lstm.dim, lstm.n_layers, requires_grad, of=bilm)
        self._word_embedding: nn.Embedding | None = None
        if vocab_to_cache:
            if requires_grad:
                _LOGGER.warning(
                    "cached words learn on their own and no longer by their characters; leave "
                    "vocab_to_cache out while fine-tuning"
                )
            ids = torch.from_numpy(alphabet.encode([*alphabet.markers, *vocab_to_cache])).long()
            with torch.no_grad():
                vectors = self._token_embedder.encoder(ids)
            vectors[2] = 0  # the padding, which no LSTM ever sees
            n_words, dim = vectors[2:].shape
            words = nn.Embedding(n_words, dim, _weight=vectors[2:].clone())
            self._word_embedding = words.requires_grad_(requires_grad)
            # A buffer, so that it moves with the module; not saved, because AllenNLP's state dicts
            # lack it.
            self.register_buffer("_marker_vectors", vectors[:2].clone(), persistent=False)
        self.num_layers = checkpoint.config.n_layers
        self._dim = checkpoint.config.dim

    def get_output_dim(self) -> int:
        """Size of a vector, both directions."""
        return self._dim

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> BiLmOutput:
        """All layers of a batch of character ids, (batch, time, 50).

        `word_inputs` are ids of cached words, (batch, time), 0 for padding. A batch with a word
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
                vectors, index, lengths = self._cached_words(cached, word_inputs)
            else:
                batch = self._token_embedder.batch(inputs)
                vectors, index = self._token_embedder.vectors(batch), batch.index
                lengths = batch.lengths
            layers = self._elmo_lstm.run(vectors, index, lengths)
        return {"activations": list(layers), "mask": _mask(lengths, layers.shape[2])}

    def _cached_words(
        self, cached: nn.Embedding, word_inputs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors, index and lengths; in the table the markers come first, then the words."""
        lengths = (word_inputs > 0).sum(dim=1)
        batch, time = word_inputs.shape
        index = word_inputs.new_zeros(batch, time + 2)
        index[:, 1:-1] = word_inputs + 2
        index.scatter_(1, lengths[:, None] + 1, 1)
        vectors = torch.cat([self.get_buffer("_marker_vectors"), cached.weight])
        return vectors, index, lengths + 2


def _mask(lengths: Tensor, time: int) -> Tensor:
    """Which places are real, (batch, time)."""
    return torch.arange(time, device=lengths.device) < lengths[:, None]


# --------------------------------------------------------------------------- state dicts

Change = Callable[[Tensor], Tensor]


def _with_zeros(table: Tensor, before: int, after: int) -> Tensor:
    return nn.functional.pad(table, (0, 0, before, after))


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _turned(tensor: Tensor) -> Tensor:
    half = len(tensor) // 2
    return torch.cat([tensor[:half], -tensor[half:]])


def _shifted(bias: Tensor, by: float) -> Tensor:
    cells = len(bias) // 4
    shifted = bias.clone()
    shifted[cells : 2 * cells] += by
    return shifted


# Our name, AllenNLP's name (both with {} for the parts that are kept), how ours becomes theirs, and
# back. Used in both directions.
_TABLE: tuple[tuple[str, str, Change, Change], ...] = (
    (
        "encoder.characters",
        "_char_embedding_weights",
        lambda table: _with_zeros(table, 1, 0),
        lambda table: table[1:],
    ),
    ("encoder.convolutions.{}.{}", "char_conv_{}.{}", _same, _same),
    ("encoder.highways.{}.{}", "_highways._layers.{}.{}", _turned, _turned),
    ("encoder.projection.{}", "_projection.{}", _same, _same),
    ("{}_layers.{}.input_weight", "{}_layer_{}.input_linearity.weight", _same, _same),
    ("{}_layers.{}.state_weight", "{}_layer_{}.state_linearity.weight", _same, _same),
    (
        "{}_layers.{}.bias",
        "{}_layer_{}.state_linearity.bias",
        lambda bias: _shifted(bias, FORGET_BIAS),
        lambda bias: _shifted(bias, -FORGET_BIAS),
    ),
    ("{}_layers.{}.projection", "{}_layer_{}.state_projection.weight", _same, _same),
)


def _keep_allennlp_layout(module: nn.Module) -> None:
    """Make a module save and load its part of a state dict as AllenNLP's module did."""
    hooked: Any = module  # the oldest names of these hooks, which every torch has
    hooked._register_state_dict_hook(_after_saving)
    hooked._register_load_state_dict_pre_hook(_before_loading)


def _after_saving(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    for ours, theirs, change, _back in _TABLE:
        _rename(state, prefix, ours, theirs, change)


def _before_loading(state: dict[str, Any], prefix: str, *_: object) -> None:
    for ours, theirs, _there, change in _TABLE:
        _rename(state, prefix, theirs, ours, change)


def _rename(state: dict[str, Any], prefix: str, old: str, new: str, change: Change) -> None:
    # Only below the prefix: the same hooks run for every module of a larger model.
    pattern = re.compile(re.escape(prefix) + re.escape(old).replace(r"\{\}", r"([^.]+?)"))
    for key in list(state):
        match = pattern.fullmatch(key)
        if match is not None:
            state[prefix + new.format(*match.groups())] = change(state.pop(key))

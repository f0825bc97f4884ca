"""AllenNLP's `_ElmoCharacterEncoder`, and state dicts in AllenNLP's layout.

A highway gate has the other sign there, the forget bias of 1 is inside the bias, and the character
table has a row of zeros in front (AllenNLP's modules elmo, highway, lstm_cell_with_projection).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from elmore.compat.allennlp.character_ids import FileName, read_files
from elmore.compute.recurrence import FORGET_BIAS
from elmore.embedding.torch_network import build_bilm
from elmore.nn.charcnn import TokenEncoder
from elmore.nn.inputs import TensorBatch
from elmore.text.characters import Alphabet

__all__ = ["_ElmoCharacterEncoder", "keep_allennlp_layout"]


class _ElmoCharacterEncoder(nn.Module):
    """The token layer of a biLM, from the files of `read_files`."""

    def __init__(
        self, options_file: FileName, weight_file: FileName, requires_grad: bool = False
    ) -> None:
        super().__init__()
        checkpoint = read_files(options_file, weight_file)
        self._hold(build_bilm(checkpoint).tokens, checkpoint.alphabet, requires_grad)

    @classmethod
    def of(
        cls, encoder: TokenEncoder, alphabet: Alphabet | None, requires_grad: bool
    ) -> _ElmoCharacterEncoder:
        """Make one that shares a token encoder which is there already."""
        # Not through the constructor, which would read the files once more.
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made._hold(encoder, alphabet, requires_grad)
        return made

    def _hold(self, encoder: TokenEncoder, alphabet: Alphabet | None, requires_grad: bool) -> None:
        self.encoder = encoder
        self.requires_grad = requires_grad
        encoder.requires_grad_(requires_grad)
        markers = alphabet.encode(alphabet.markers) if alphabet is not None else None
        # Not saved: it follows from the alphabet, and AllenNLP's state dicts do not have
        # it.
        self.register_buffer("_markers", torch.as_tensor(markers).long(), persistent=False)
        keep_allennlp_layout(self)

    def get_output_dim(self) -> int:
        """Size of a vector."""
        projection = self.encoder.projection
        if projection is not None:
            return len(projection.bias)
        return self.encoder.config.n_features

    def batch(self, inputs: Tensor) -> TensorBatch:
        """Find the distinct words of character ids, (batch, time, 50), and add the markers."""
        markers: Tensor = self.get_buffer("_markers")
        return TensorBatch.from_character_ids(inputs, markers)

    def vectors(self, batch: TensorBatch) -> Tensor:
        """The vectors of the distinct words of a batch, (n_words, dim)."""
        words = batch.words
        if words is None or not (words == 0).any():
            return cast(Tensor, self.encoder(words))
        # AllenNLP's table has a row of zeros for id 0, which no text leads to but made-up ids do.
        # The encoder's table has none: such words are read with one more character at its end.
        table = self.encoder.characters
        more = torch.cat([table, table.new_zeros(1, table.shape[1])])
        words = words.masked_fill(words == 0, len(more))
        learns = torch.is_grad_enabled()
        with torch.enable_grad():  # the way without gradients keeps tables of the plain size
            vectors = torch.func.functional_call(self.encoder, {"characters": more}, (words,))
        return cast(Tensor, vectors if learns else vectors.detach())

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """The vectors of a batch with both markers.

        Args:
            inputs: character ids, (batch, time, 50).

        Returns:
            `token_embedding` (batch, time + 2, dim), zero where a sentence has ended, and `mask`
            (batch, time + 2).
        """
        batch = self.batch(inputs)
        places = torch.arange(batch.index.shape[1], device=inputs.device)
        mask = places < batch.lengths[:, None]
        vectors = self.vectors(batch)[batch.index]
        return {"mask": mask, "token_embedding": vectors * mask[:, :, None]}


Change = Callable[[Tensor], Tensor]


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _padded(table: Tensor) -> Tensor:
    return torch.cat([table.new_zeros(1, table.shape[1]), table])


def _unpadded(table: Tensor) -> Tensor:
    return table[1:]


def _turned(tensor: Tensor) -> Tensor:
    half = len(tensor) // 2
    return torch.cat([tensor[:half], -tensor[half:]])


def _shifted(bias: Tensor, by: float) -> Tensor:
    cells = len(bias) // 4
    shifted = bias.clone()
    shifted[cells : 2 * cells] += by
    return shifted


def _with_forget_bias(bias: Tensor) -> Tensor:
    return _shifted(bias, FORGET_BIAS)


def _without_forget_bias(bias: Tensor) -> Tensor:
    return _shifted(bias, -FORGET_BIAS)


# Our name, AllenNLP's name (both with {} for the parts that are kept), how ours becomes theirs, and
# back. Used in both directions.
_TABLE: tuple[tuple[str, str, Change, Change], ...] = (
    ("encoder.characters", "_char_embedding_weights", _padded, _unpadded),
    ("encoder.convolutions.{}.{}", "char_conv_{}.{}", _same, _same),
    ("encoder.highways.{}.{}", "_highways._layers.{}.{}", _turned, _turned),
    ("encoder.projection.{}", "_projection.{}", _same, _same),
    ("{}_layers.{}.input_weight", "{}_layer_{}.input_linearity.weight", _same, _same),
    ("{}_layers.{}.state_weight", "{}_layer_{}.state_linearity.weight", _same, _same),
    (
        "{}_layers.{}.bias",
        "{}_layer_{}.state_linearity.bias",
        _with_forget_bias,
        _without_forget_bias,
    ),
    ("{}_layers.{}.projection", "{}_layer_{}.state_projection.weight", _same, _same),
)


def keep_allennlp_layout(module: nn.Module) -> None:
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

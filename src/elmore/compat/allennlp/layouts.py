"""State dicts in AllenNLP's layout: its names for our parameters, and what differs in them.

A highway gate has the other sign there, the forget bias of 1 is inside the bias, and the character
table has a row of zeros in front (AllenNLP's modules elmo, highway, lstm_cell_with_projection).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from elmore.kernels.recurrence import FORGET_BIAS

__all__ = ["keep_allennlp_layout"]

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
    pattern = re.compile(re.escape(prefix) + re.escape(old).replace(r"\{\}", r"([^.]+?)"))
    for key in list(state):
        match = pattern.fullmatch(key)
        if match is not None:
            state[prefix + new.format(*match.groups())] = change(state.pop(key))

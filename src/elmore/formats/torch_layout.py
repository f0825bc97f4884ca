"""The tensors of AllenNLP's modules, which ELMoForManyLangs copied, as our weights.

Matrices are (out, in) and gates i, f, j, o, as ours. There are two differences. The gate of a
highway layer lets the *input* through and ours the transformed part, so its sign is negated. And
the forget bias of 1 is part of the bias.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmore.config import BiLmConfig
from elmore.formats.bilm_weights import Link

__all__ = ["TorchNames", "torch_links", "without_forget_bias"]

Array = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class TorchNames:
    """Names of the tensors in a state dict.

    Attributes:
        characters: the character table.
        first_character: rows before the first character; AllenNLP has one of zeros.
        words: the word table.
        convolution: a filter; {} is its number.
        highway: a highway layer; {} is its number.
        projection: the layer after the highway layers.
        lstm: a layer of the LSTM; {} are direction and number.
    """

    characters: str
    first_character: int
    words: str
    convolution: str
    highway: str
    projection: str
    lstm: str


def torch_links(config: BiLmConfig, names: TorchNames) -> list[Link]:
    """All links of a model with separate directions; for mixed ones, of the token layer only."""
    tokens, lstm = config.tokens, config.lstm
    table: list[Link] = []
    if tokens.n_words:
        table.append(Link(names.words, "tokens.words", (tokens.n_words, tokens.word_dim)))
    if tokens.n_characters:
        first = names.first_character
        shape = (tokens.n_characters + first, tokens.char_dim)
        # AllenNLP's row of zeros is for padding, which our batches never look up.
        rows = slice(first, None)
        table.append(Link(names.characters, "tokens.characters", shape, dataset_rows=rows))
    for i, (width, count) in enumerate(tokens.filters):
        name = names.convolution.format(i)
        weight = f"tokens.convolutions.{i}"
        filter_shape = (count, tokens.char_dim, width)
        table.append(Link(f"{name}.weight", f"{weight}.weight", filter_shape))
        table.append(Link(f"{name}.bias", f"{weight}.bias", (count,)))
    for k in range(tokens.n_highway):
        table += _highway(names.highway.format(k), f"tokens.highways.{k}", tokens.n_filters)
    if tokens.projected:
        shape = (lstm.projection_dim, tokens.n_features)
        table.append(Link(f"{names.projection}.weight", "tokens.projection.weight", shape))
        table.append(Link(f"{names.projection}.bias", "tokens.projection.bias", shape[:1]))
    if lstm.mixed:  # torch's own nn.LSTM, read in manylangs_folder.py
        return table
    for direction in config.directions:
        for k in range(lstm.n_layers):
            name, weight = names.lstm.format(direction, k), f"{direction}_layers.{k}"
            gates = (4 * lstm.dim, lstm.projection_dim)
            bias = f"{name}.state_linearity.bias"
            table += [
                Link(f"{name}.input_linearity.weight", f"{weight}.input_weight", gates),
                Link(f"{name}.state_linearity.weight", f"{weight}.state_weight", gates),
                Link(bias, f"{weight}.bias", gates[:1], there=without_forget_bias),
                Link(
                    f"{name}.state_projection.weight",
                    f"{weight}.projection",
                    (lstm.projection_dim, lstm.dim),
                ),
            ]
    return table


def _highway(name: str, weight: str, size: int) -> list[Link]:
    table = []
    # The first half of the rows computes the transformed part, the second half the gate.
    for rows, turn in ((slice(0, size), np.positive), (slice(size, 2 * size), np.negative)):
        for part, shape in (("weight", (2 * size, size)), ("bias", (2 * size,))):
            names = f"{name}.{part}", f"{weight}.{part}"
            table.append(Link(*names, shape, rows, rows, there=turn, back=turn))
    return table


def without_forget_bias(bias: Array) -> Array:
    """Subtract 1 from the forget gate, the second of four blocks: our LSTM adds it."""
    cells = len(bias) // 4
    result = bias.copy()
    result[cells : 2 * cells] -= 1
    return result

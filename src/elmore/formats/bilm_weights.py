"""The arrays of other programs as our weights: which part of which array is part of which weight.

Reading and writing bilm-tf's arrays share one table of links, so that they cannot diverge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.config import BiLmConfig, weight_shapes
from elmore.errors import FormatError
from elmore.formats.bilm_options import (
    N_CHARACTERS,
    config_from_options,
    read_languages,
    read_vocabulary,
)
from elmore.formats.checkpoint import Checkpoint, LazyWeights, Softmax
from elmore.formats.containers.arrays import Arrays, check_finite
from elmore.formats.containers.sources import Source
from elmore.text.characters import ByteAlphabet

Array = NDArray[np.float32]
Shape = tuple[int, ...]
# How the arrays of an LSTM start, in models of two directions and of one.
LSTM = ("RNN_", "rnn/")


# Conversions --------------------------------------------------------------------------------------


class _Conversion(NamedTuple):
    """Between rows of an array and rows of a weight.

    Attributes:
        read: turns rows of the array into rows of the weight.
        write: does the reverse.
        shape: the shape of the rows of the array, for that of the rows of the weight.
    """

    read: Callable[[Array], Array]
    write: Callable[[Array], Array]
    shape: Callable[[Shape], Shape] = lambda shape: shape


def _swap_gates(part: Array) -> Array:
    """Swap the middle two of four blocks of the last axis: i,j,f,o <-> i,f,j,o."""
    # TensorFlow's LSTMCell orders the gates i, j, f, o (j is the candidate); torch and we
    # order them i, f, j, o. Exchanging the middle two is its own inverse.
    i, second, third, o = np.split(part, 4, axis=-1)
    return np.concatenate([i, third, second, o], axis=-1)


def _negate_gate(part: Array) -> Array:
    """The first half of the rows computes the transformed part, the second half the gate."""
    half = len(part) // 2
    return np.concatenate([part[:half], -part[half:]])


def _add_to_forget_gate(bias: Array, amount: int) -> Array:
    """The forget gate is the second of four blocks."""
    cells = len(bias) // 4
    result = bias.copy()
    result[cells : 2 * cells] += amount
    return result


_SAME = _Conversion(lambda part: part, lambda part: part)
# bilm-tf's matrices act on row vectors, ours are (out, in). Patterns of our names:
_BILM_TF = {
    # (1, width, in, out) <-> (out, in, width)
    r"tokens\.convolutions\.\d+\.weight": _Conversion(
        lambda part: part[0].transpose(2, 1, 0),
        lambda part: part.transpose(2, 1, 0)[None],
        lambda shape: (1, *shape[::-1]),
    ),
    r"tokens\.(highways\.\d+|projection)\.weight|\w+_layers\.\d+\.projection": _Conversion(
        np.transpose, np.transpose, lambda shape: shape[::-1]
    ),
    # (in, gates) <-> (gates, in)
    r"\w+_layers\.\d+\.\w+_weight": _Conversion(
        lambda part: _swap_gates(part).T,
        lambda part: _swap_gates(part.T),
        lambda shape: shape[::-1],
    ),
    r"\w+_layers\.\d+\.bias": _Conversion(_swap_gates, _swap_gates),
}
# AllenNLP's modules, which ELMoForManyLangs copied, have matrices (out, in) and gates i, f, j, o,
# as ours. The gate of a highway layer lets the *input* through and ours the transformed part, so
# its sign is negated. And the forget bias of 1 is part of the bias; our LSTM adds it.
_TORCH = {
    r"tokens\.highways\..*": _Conversion(_negate_gate, _negate_gate),
    r"\w+_layers\.\d+\.bias": _Conversion(
        partial(_add_to_forget_gate, amount=-1), partial(_add_to_forget_gate, amount=1)
    ),
}


# Names --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where a program puts the weights; without `conversions` it is one with AllenNLP's modules.

    Attributes:
        names: pattern of our names → the arrays of such a weight, one after the other by its rows.
            Several weights in one array follow each other there too.
        conversions: pattern of our names → what differs from ours.
        complete: how the names start of the arrays that must be weights; "" for all of them.
        first_character: rows before the first character; AllenNLP has one of zeros for padding.
    """

    names: Mapping[str, str]
    conversions: Mapping[str, _Conversion] = field(default_factory=lambda: _TORCH)
    complete: str | tuple[str, ...] = ""
    first_character: int = 0


# TensorFlow's spellings through the years, in training graphs and in inference graphs. A model of
# one layer has no MultiRNNCell.
_CELL = re.compile(
    r"(?:RNN_(?P<direction>\d+)/)?(?:RNN|rnn)/"
    r"(?:(?:MultiRNNCell|multi_rnn_cell)/(?:Cell|cell_)(?P<layer>\d+)/)?"
    r"(?:rnn/)?(?:LSTMCell|lstm_cell)/(?P<leaf>.+)"
)
# In models of two directions, and of one.
_LEAVES = {
    **dict.fromkeys(("kernel", "weights", "W_0"), ("W_0", "kernel")),
    **dict.fromkeys(("bias", "biases", "B"), ("B", "bias")),
    **dict.fromkeys(
        ("projection/kernel", "projection/weights", "W_P_0"), ("W_P_0", "projection/kernel")
    ),
}


def canonical_name(name: str) -> str:
    """The name of an array as bilm-tf's `dump_weights` writes it for a model of several layers."""
    match = _CELL.fullmatch(name)
    leaves = _LEAVES.get(match["leaf"]) if match else None
    if match is None or leaves is None:
        return name
    cell = f"MultiRNNCell/Cell{int(match['layer'] or 0)}/LSTMCell"
    if match["direction"] is None:
        return f"rnn/{cell}/{leaves[1]}"
    return f"RNN_{match['direction']}/RNN/{cell}/{leaves[0]}"


def bilm_layout(config: BiLmConfig, first_character: int = 0) -> Layout:
    """Where bilm-tf puts the weights, by canonical names."""
    names = {
        r"tokens\.words": "embedding",
        r"tokens\.characters": "char_embed",
        r"tokens\.convolutions\.(\d+)\.weight": r"CNN/W_cnn_\1",
        r"tokens\.convolutions\.(\d+)\.bias": r"CNN/b_cnn_\1",
        # One matrix holds both parts in our models, so that one product computes them. The "carry"
        # gate is our gate: it multiplies the transformed part.
        r"tokens\.highways\.(\d+)\.weight": r"CNN_high_\1/W_transform CNN_high_\1/W_carry",
        r"tokens\.highways\.(\d+)\.bias": r"CNN_high_\1/b_transform CNN_high_\1/b_carry",
        r"tokens\.projection\.weight": "CNN_proj/W_proj",
        r"tokens\.projection\.bias": "CNN_proj/b_proj",
    }
    for d, direction in enumerate(config.directions):
        # A model of one direction keeps TensorFlow's own names, because the renaming of
        # `dump_weights` handles RNN_0 and RNN_1 only.
        scope = f"RNN_{d}/RNN" if config.lstm.bidirectional else "rnn"
        for ours, leaf in (
            (r"\w+_weight", "kernel"),  # rows for the input, then rows for the previous output
            ("bias", "bias"),
            ("projection", "projection/kernel"),
        ):
            name = canonical_name(f"{scope}/LSTMCell/{leaf}").replace("Cell0", r"Cell\1")
            names[rf"{direction}_layers\.(\d+)\.{ours}"] = name
    return Layout(
        names=names,
        conversions=_BILM_TF,
        complete=("CNN", *LSTM),
        first_character=first_character,
    )


def cell_names(layer: str) -> dict[str, str]:
    r"""AllenNLP's names in a layer; `layer` has \1 for the direction and \2 for the number."""
    theirs = {
        "input_weight": "input_linearity.weight",
        "state_weight": "state_linearity.weight",
        "bias": "state_linearity.bias",
        "projection": "state_projection.weight",
    }
    return {rf"(\w+)_layers\.(\d+)\.{name}": f"{layer}.{theirs[name]}" for name in theirs}


# Links --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Link:
    """Rows of an array in a file that are rows of a weight."""

    array: str
    array_rows: slice
    weight: str
    weight_rows: slice
    convert: _Conversion


def _links(config: BiLmConfig, layout: Layout) -> tuple[list[_Link], dict[str, Shape]]:
    """All links, and the shapes of the arrays."""
    links: list[_Link] = []
    shapes: dict[str, Shape] = {}
    for weight, shape in weight_shapes(config).items():
        match, found = next(
            (m, to) for p, to in layout.names.items() if (m := re.fullmatch(p, weight))
        )
        convert = next((c for p, c in layout.conversions.items() if re.fullmatch(p, weight)), _SAME)
        arrays = match.expand(found).split()
        size = shape[0] // len(arrays)
        before = layout.first_character if weight == "tokens.characters" else 0
        for k, array in enumerate(arrays):
            rows, *rest = convert.shape((size, *shape[1:]))
            start = shapes[array][0] if array in shapes else before
            shapes[array] = (start + rows, *rest)
            weight_rows = slice(k * size, (k + 1) * size)
            links.append(_Link(array, slice(start, start + rows), weight, weight_rows, convert))
    return links, shapes


def bilm_arrays(checkpoint: Checkpoint) -> Iterator[tuple[str, Array]]:
    """The arrays of a model as bilm-tf's `dump_weights` writes them, one by one."""
    config = checkpoint.config
    links, shapes = _links(config, bilm_layout(config))
    for name, shape in shapes.items():
        array = np.empty(shape, np.float32)
        for link in links:
            if link.array == name:
                weight = checkpoint.weights[link.weight]
                check_finite(weight, what="this model", name=link.weight)
                array[link.array_rows] = link.convert.write(weight[link.weight_rows])
        yield name, array


def read_weights(
    config: BiLmConfig, layout: Layout, arrays: Arrays, options: str
) -> tuple[LazyWeights, frozenset[str]]:
    """Compare the arrays of a file with the options.

    Args:
        config: the model.
        layout: where its weights are.
        arrays: of the file; no value is read.
        options: name of the options file, for messages.

    Returns:
        the weights, which are assembled on request, and the types of their arrays.
    """
    links, shapes = _links(config, layout)
    for name, shape in shapes.items():
        found = arrays.shapes.get(name)
        if found != shape:
            what = "is missing" if found is None else f"has shape {found}"
            raise FormatError(
                f"'{arrays.what}': {name} {what}, '{options}' needs {shape}; "
                f"pass the options that belong to these weights"
            )
    for name in arrays.shapes:
        # A layer that the options do not describe would silently be left out of the model.
        if name.startswith(layout.complete) and name not in shapes:
            raise FormatError(
                f"'{arrays.what}' has {shown(name, 80)}, which '{options}' does not describe; "
                f"pass the options that belong to these weights"
            )
    last: dict[str, Array] = {}  # one array, which often has several weights

    def array_of(name: str) -> Array:
        if name not in last:
            last.clear()  # frees the old array before the new one is read
            last[name] = arrays.floats(name)
        return last[name]

    def weight_of(name: str, shape: Shape) -> Array:
        weight = np.empty(shape, np.float32)
        for link in links:
            if link.weight == name:
                part = array_of(link.array)[link.array_rows]
                weight[link.weight_rows] = link.convert.read(part)
        return weight

    weights = {
        name: partial(weight_of, name, shape) for name, shape in weight_shapes(config).items()
    }
    return LazyWeights(weights), frozenset(arrays.types[name] for name in shapes)


# Models of bilm-tf --------------------------------------------------------------------------------


def read_bilm(
    source: Source,
    arrays: Arrays,
    options: Mapping[str, Any],
    options_name: str,
    *,
    softmax: Arrays | None,
) -> Checkpoint:
    """Read a model of bilm-tf, whose arrays have canonical names.

    Names and shapes are compared with the options before any array is read. The arrays are read
    on request.
    """
    if not any(name.startswith(LSTM) for name in arrays.shapes):
        raise FormatError(
            f"'{arrays.what}' has no LSTM of a biLM (no RNN_0/...); pass the file of its weights"
        )
    config = config_from_options(
        options,
        # The options do not say it; only models of one direction have these names.
        bidirectional=not any(name.startswith("rnn/") for name in arrays.shapes),
        n_words=(arrays.shapes.get("embedding") or (0,))[0],
        what=options_name,
    )
    # Inference graphs put a row of zeros before the characters, for padded positions.
    padded = (arrays.shapes.get("char_embed") or (0,))[0] == N_CHARACTERS + 1
    layout = bilm_layout(config, first_character=int(padded))
    weights, types = read_weights(config, layout, arrays, options_name)
    notes: dict[str, Any] = {}
    # Byte models run without a vocabulary, and one in the folder may belong to something else.
    needs_words = config.tokens.n_words or softmax is not None
    vocabulary = read_vocabulary(source) if needs_words else None
    if softmax is not None and vocabulary is None:
        if softmax is not arrays:  # a file of its own
            raise FormatError(
                f"'{softmax.what}' is a softmax but there is no vocabulary; put vocab.txt into the "
                "folder or pass (options, weights, vocabulary, softmax)"
            )
        notes["softmax"] = "left out: there is no vocabulary with it"
        softmax = None
    if languages := read_languages(source):
        notes["languages"] = languages
    return Checkpoint(
        config=config,
        weights=weights,
        alphabet=ByteAlphabet(config.tokens.max_chars) if config.tokens.n_characters else None,
        vocabulary=vocabulary,
        softmax=_read_softmax(softmax, len(vocabulary or ()), config),
        notes=notes,
        origin=source.name,
        stored_types=types,
    )


def _read_softmax(arrays: Arrays | None, n_words: int, config: BiLmConfig) -> Softmax | None:
    """Read the output layer; if it is shared with the input, the word table is its weight."""
    if arrays is None:
        return None
    shared = "softmax/W" not in arrays.shapes and "embedding" in arrays.shapes
    weight = "embedding" if shared else "softmax/W"
    shape = (n_words, config.lstm.projection_dim)
    for name, wanted in ((weight, shape), ("softmax/b", shape[:1])):
        if arrays.shapes.get(name) != wanted:
            raise FormatError(
                f"'{arrays.what}': {name} has shape {arrays.shapes.get(name)}, expected {wanted} "
                "from the vocabulary and the options; pass files that belong together"
            )
    return Softmax(arrays.floats(weight), arrays.floats("softmax/b"))

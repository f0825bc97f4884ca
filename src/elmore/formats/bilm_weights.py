"""The arrays of other programs as our weights: which part of which array is part of which weight.

Reading and writing bilm-tf's arrays share one table of links, so that they cannot diverge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.config import BiLmConfig, LstmConfig, weight_shapes
from elmore.errors import FormatError
from elmore.formats.bilm_options import config_from_options, read_languages, read_vocabulary
from elmore.formats.checkpoint import Checkpoint, LazyWeights, Softmax
from elmore.formats.containers.arrays import Arrays
from elmore.formats.containers.sources import Source
from elmore.text.characters import ByteAlphabet

Array = NDArray[np.float32]
Shapes = Mapping[str, tuple[int, ...]]
# Names of kernel, bias and projection of each (direction, layer).
LstmNames = Mapping[tuple[str, int], tuple[str, str, str]]


def _swap_gates(part: Array) -> Array:
    """Swap the middle two of four blocks of the last axis: i,j,f,o <-> i,f,j,o."""
    # TensorFlow's LSTMCell orders the gates i, j, f, o (j is the candidate); torch and we
    # order them i, f, j, o. Exchanging the middle two is its own inverse.
    i, second, third, o = np.split(part, 4, axis=-1)
    return np.concatenate([i, third, second, o], axis=-1)


# Rows of an array to rows of a weight, and back.
_Conversion = tuple[Callable[[Array], Array], Callable[[Array], Array]]
_SAME: _Conversion = (lambda part: part, lambda part: part)
_TRANSPOSED: _Conversion = (lambda part: part.T, lambda part: part.T)
_BIAS: _Conversion = (_swap_gates, _swap_gates)
# (in, gates) <-> (gates, in)
_GATES: _Conversion = (lambda part: _swap_gates(part).T, lambda part: _swap_gates(part.T))
# (1, width, in, out) <-> (out, in, width)
_FILTER: _Conversion = (
    lambda part: part[0].transpose(2, 1, 0),
    lambda part: part.transpose(2, 1, 0)[None],
)


@dataclass(frozen=True, slots=True)
class Link:
    """Rows of an array in a file that are rows of a weight.

    Attributes:
        dataset: name of the array in the file.
        weight: our name.
        shape: shape of the complete array.
        dataset_rows: rows of the array.
        weight_rows: rows of the weight.
        convert: turns rows of the array into rows of the weight, and back.
    """

    dataset: str
    weight: str
    shape: tuple[int, ...]
    dataset_rows: slice = field(default_factory=lambda: slice(None))
    weight_rows: slice = field(default_factory=lambda: slice(None))
    convert: _Conversion = _SAME


def links(config: BiLmConfig, lstm_names: LstmNames, first_character: int = 0) -> list[Link]:
    """All links of bilm-tf's arrays; its matrices act on row vectors, ours are (out, in).

    `first_character` is the number of rows before that of the first character.
    """
    tokens, dim = config.tokens, config.lstm.projection_dim
    table: list[Link] = []
    if tokens.n_words:
        table.append(Link("embedding", "tokens.words", (tokens.n_words, tokens.word_dim)))
    if tokens.n_characters:
        shape = (tokens.n_characters + first_character, tokens.char_dim)
        rows = slice(first_character, None)
        table.append(Link("char_embed", "tokens.characters", shape, dataset_rows=rows))
    for i, (width, count) in enumerate(tokens.filters):
        weight, filter_shape = f"tokens.convolutions.{i}", (1, width, tokens.char_dim, count)
        table += [
            Link(f"CNN/W_cnn_{i}", f"{weight}.weight", filter_shape, convert=_FILTER),
            Link(f"CNN/b_cnn_{i}", f"{weight}.bias", (count,)),
        ]
    for k in range(tokens.n_highway):
        table += _highway_links(k, tokens.n_filters)
    if tokens.projected:
        shape = (tokens.n_features, dim)
        table += [
            _matrix("CNN_proj/W_proj", "tokens.projection.weight", shape),
            Link("CNN_proj/b_proj", "tokens.projection.bias", (dim,)),
        ]
    for direction in config.directions:
        for k in range(config.lstm.n_layers):
            table += _lstm_links(config.lstm, f"{direction}_layers.{k}", lstm_names[direction, k])
    return table


def by_dataset(table: Iterable[Link]) -> dict[str, list[Link]]:
    """Group links by array."""
    grouped: dict[str, list[Link]] = {}
    for link in table:
        grouped.setdefault(link.dataset, []).append(link)
    return grouped


def dump_names(config: BiLmConfig, present: Iterable[str] = ()) -> LstmNames:
    """Names of the LSTM arrays as bilm-tf's `dump_weights` writes them.

    A model of one direction keeps TensorFlow's own names, because the renaming handles RNN_0 and
    RNN_1 only. A model of one layer has no MultiRNNCell.

    `present` are the names in a file, to choose between spellings.
    """
    known = set(present)
    two_way = config.lstm.bidirectional
    leaves = ("W_0", "B", "W_P_0") if two_way else ("kernel", "bias", "projection/kernel")
    names = {}
    for d, direction in enumerate(config.directions):
        scope = f"RNN_{d}/RNN" if two_way else "rnn"
        for k in range(config.lstm.n_layers):
            cells = [f"{scope}/MultiRNNCell/Cell{k}/LSTMCell"]
            if config.lstm.n_layers == 1:
                cells.append(f"{scope}/LSTMCell")
            cell = next((c for c in cells if f"{c}/{leaves[0]}" in known), cells[0])
            kernel, bias, projection = (f"{cell}/{leaf}" for leaf in leaves)
            names[direction, k] = (kernel, bias, projection)
    return names


def _matrix(dataset: str, weight: str, shape: tuple[int, ...], rows: slice | None = None) -> Link:
    return Link(dataset, weight, shape, weight_rows=rows or slice(None), convert=_TRANSPOSED)


def _highway_links(k: int, size: int) -> list[Link]:
    """bilm-tf's "carry" gate is our gate: it multiplies the transformed part."""
    weight, table = f"tokens.highways.{k}", []
    # One matrix holds both parts in our models, so that one product computes them.
    for kind, rows in (("transform", slice(0, size)), ("carry", slice(size, 2 * size))):
        table.append(_matrix(f"CNN_high_{k}/W_{kind}", f"{weight}.weight", (size, size), rows))
        table.append(Link(f"CNN_high_{k}/b_{kind}", f"{weight}.bias", (size,), weight_rows=rows))
    return table


def _lstm_links(lstm: LstmConfig, weight: str, names: Sequence[str]) -> list[Link]:
    """One kernel is for the input (upper rows) and the previous output (lower rows)."""
    kernel, bias, projection = names
    dim, shape = lstm.projection_dim, (2 * lstm.projection_dim, 4 * lstm.dim)
    table = [
        Link(kernel, f"{weight}.{part}_weight", shape, dataset_rows=rows, convert=_GATES)
        for part, rows in (("input", slice(0, dim)), ("state", slice(dim, 2 * dim)))
    ]
    table.append(Link(bias, f"{weight}.bias", shape[1:], convert=_BIAS))
    if lstm.projected:
        table.append(_matrix(projection, f"{weight}.projection", (lstm.dim, dim)))
    return table


# AllenNLP and ELMoForManyLangs -------------------------------------------------------------------

_CELL = {
    "input_weight": "input_linearity.weight",
    "state_weight": "state_linearity.weight",
    "bias": "state_linearity.bias",
    "projection": "state_projection.weight",
}


def torch_links(
    config: BiLmConfig, names: Mapping[str, str], first_character: int = 0
) -> list[Link]:
    """All links of AllenNLP's modules, which ELMoForManyLangs copied.

    Matrices are (out, in) and gates i, f, j, o, as ours. There are two differences. The gate of a
    highway layer lets the *input* through and ours the transformed part, so its sign is negated.
    And the forget bias of 1 is part of the bias.

    Args:
        config: the model.
        names: pattern of the start of our name → their name in its place. A layer of an LSTM is
            matched up to its number.
        first_character: rows before the first character; AllenNLP has one of zeros for padding.
    """
    table = []
    for weight, shape in weight_shapes(config).items():
        match, start = next(
            (match, start) for p, start in names.items() if (match := re.match(p, weight))
        )
        rest = weight[match.end() :]
        if rest and "_layers." in weight:
            rest = f".{_CELL[rest[1:]]}"
        name = match.expand(start) + rest
        link = Link(name, weight, shape)
        if weight == "tokens.characters":
            padded = (shape[0] + first_character, *shape[1:])
            link = Link(name, weight, padded, dataset_rows=slice(first_character, None))
        elif weight.startswith("tokens.highways"):
            link = Link(name, weight, shape, convert=(_negate_gate, _negate_gate))
        elif "_layers." in weight and weight.endswith("bias"):
            link = Link(name, weight, shape, convert=_FORGET_BIAS)
        table.append(link)
    return table


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


# Our LSTM adds 1 to the forget gate.
_FORGET_BIAS = (partial(_add_to_forget_gate, amount=-1), partial(_add_to_forget_gate, amount=1))


# Reading ------------------------------------------------------------------------------------------


def linked_weights(config: BiLmConfig, table: Sequence[Link], arrays: Arrays) -> LazyWeights:
    """Weights that are assembled on request from the arrays of a file."""
    last: dict[str, Array] = {}  # one array, which often has several weights

    def dataset(name: str) -> Array:
        if name not in last:
            last.clear()  # frees the old array before the new one is read
            last[name] = arrays.floats(name)
        return last[name]

    def weight(name: str, shape: tuple[int, ...]) -> Array:
        array = np.empty(shape, np.float32)
        for link in table:
            if link.weight == name:
                array[link.weight_rows] = link.convert[0](dataset(link.dataset)[link.dataset_rows])
        return array

    return LazyWeights(
        {name: partial(weight, name, shape) for name, shape in weight_shapes(config).items()}
    )


def check_arrays(
    table: Sequence[Link], arrays: Arrays, options: str, *, all_known: bool = False
) -> None:
    """Compare the arrays of a file with the options.

    With `all_known`, refuse every array that the options do not describe, not only further layers.
    """
    shapes, weights = arrays.shapes, arrays.what
    for link in table:
        found = shapes.get(link.dataset)
        if found != link.shape:
            what = "is missing" if found is None else f"has shape {found}"
            raise FormatError(
                f"'{weights}': {link.dataset} {what}, '{options}' needs {link.shape}; "
                f"pass the options that belong to these weights{_guess(shapes)}"
            )
    known = {link.dataset for link in table}
    for name in shapes:
        # A layer that the options do not describe would silently be left out of the model.
        layer = all_known or name.startswith(("CNN", "RNN_", "rnn/"))
        if layer and name not in known:
            raise FormatError(
                f"'{weights}' has {shown(name, 80)}, which '{options}' does not describe; "
                f"pass the options that belong to these weights{_guess(shapes)}"
            )


def read_bilm(
    source: Source,
    arrays: Arrays,
    options: Mapping[str, Any],
    options_name: str,
    *,
    softmax: Arrays | None,
    first_character: int = 0,
) -> Checkpoint:
    """Read a model of bilm-tf, whose arrays have the names of its HDF5 files.

    Names and shapes are compared with the options before any array is read. The arrays are read
    on request.
    """
    config = config_from_options(
        options,
        # The options do not say it; only models of one direction have these names.
        bidirectional=not any(name.startswith("rnn/") for name in arrays.shapes),
        n_words=(arrays.shapes.get("embedding") or (0,))[0],
        what=options_name,
    )
    table = links(config, dump_names(config, arrays.shapes), first_character)
    check_arrays(table, arrays, options_name)
    notes: dict[str, Any] = {}
    vocabulary = read_vocabulary(source)
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
    # Byte models run without a vocabulary, and one in the folder may belong to something else.
    needs_words = bool(config.tokens.n_words) or softmax is not None
    return Checkpoint(
        config=config,
        weights=linked_weights(config, table, arrays),
        alphabet=ByteAlphabet(config.tokens.max_chars) if config.tokens.n_characters else None,
        vocabulary=vocabulary if needs_words else None,
        softmax=_read_softmax(softmax, len(vocabulary or ()), config),
        notes=notes,
        origin=source.name,
        stored_types=frozenset(arrays.types[link.dataset] for link in table),
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


def _guess(shapes: Shapes) -> str:
    """Sizes according to the arrays, as a hint to the right options."""
    # A kernel is (2 * projection_dim, 4 * dim): input and previous output come in, four gates
    # go out.
    kernel = next((s for n, s in shapes.items() if n.endswith(("/W_0", "/kernel"))), None)
    if kernel is None or len(kernel) != 2:
        return ""
    highways = {match[0] for name in shapes if (match := re.match(r"CNN_high_\d+", name))}
    return (
        f" (they look like dim {kernel[1] // 4}, projection_dim {kernel[0] // 2}, "
        f"n_highway {len(highways)})"
    )

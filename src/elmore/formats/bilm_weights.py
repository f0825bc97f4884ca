"""The arrays of bilm-tf as our weights: which part of which array is which part of which weight.

Reading and writing share one table of links, so that they cannot diverge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.config import BiLmConfig, LstmConfig, weight_shapes
from elmore.errors import FormatError
from elmore.formats.checkpoint import LazyWeights, Softmax

__all__ = [
    "Link",
    "LstmNames",
    "by_dataset",
    "check_arrays",
    "dump_names",
    "linked_weights",
    "links",
    "read_softmax",
]

Array = NDArray[np.float32]
Shapes = Mapping[str, tuple[int, ...]]
# Names of kernel, bias and projection of each (direction, layer).
LstmNames = Mapping[tuple[str, int], tuple[str, str, str]]


def _same(part: Array) -> Array:
    return part


def _transpose(part: Array) -> Array:
    return part.T


def _swap_gates(part: Array) -> Array:
    """Swap the middle two of four blocks of the last axis: i,j,f,o <-> i,f,j,o."""
    # TensorFlow's LSTMCell orders the gates i, j, f, o (j is the candidate); torch and we
    # order them i, f, j, o. Exchanging the middle two is its own inverse.
    i, second, third, o = np.split(part, 4, axis=-1)
    return np.concatenate([i, third, second, o], axis=-1)


def _gates_there(part: Array) -> Array:  # (in, gates) -> (gates, in)
    return _swap_gates(part).T


def _gates_back(part: Array) -> Array:
    return _swap_gates(part.T)


def _filter_there(part: Array) -> Array:  # (1, width, in, out) -> (out, in, width)
    return np.asarray(part[0].transpose(2, 1, 0))


def _filter_back(part: Array) -> Array:  # (out, in, width) -> (1, width, in, out)
    return part.transpose(2, 1, 0)[None]


@dataclass(frozen=True, slots=True)
class Link:
    """Rows of an array in a file that are rows of a weight.

    Attributes:
        dataset: name of the array in the file.
        weight: our name.
        shape: shape of the complete array.
        dataset_rows: rows of the array.
        weight_rows: rows of the weight.
        there: converts rows of the array to rows of the weight.
        back: the inverse.
    """

    dataset: str
    weight: str
    shape: tuple[int, ...]
    dataset_rows: slice = field(default_factory=lambda: slice(None))
    weight_rows: slice = field(default_factory=lambda: slice(None))
    there: Callable[[Array], Array] = _same
    back: Callable[[Array], Array] = _same


def links(config: BiLmConfig, lstm_names: LstmNames) -> list[Link]:
    """All links of a model; TensorFlow matrices act on row vectors, ours are (out, in)."""
    tokens, dim = config.tokens, config.lstm.projection_dim
    table: list[Link] = []
    if tokens.n_words:
        table.append(Link("embedding", "tokens.words", (tokens.n_words, tokens.word_dim)))
    if tokens.n_characters:
        shape = (tokens.n_characters, tokens.char_dim)
        table.append(Link("char_embed", "tokens.characters", shape))
    for i, (width, count) in enumerate(tokens.filters):
        weight, filter_shape = f"tokens.convolutions.{i}", (1, width, tokens.char_dim, count)
        table += [
            Link(
                f"CNN/W_cnn_{i}",
                f"{weight}.weight",
                filter_shape,
                there=_filter_there,
                back=_filter_back,
            ),
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
    return Link(
        dataset, weight, shape, weight_rows=rows or slice(None), there=_transpose, back=_transpose
    )


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
        Link(
            kernel,
            f"{weight}.{part}_weight",
            shape,
            dataset_rows=rows,
            there=_gates_there,
            back=_gates_back,
        )
        for part, rows in (("input", slice(0, dim)), ("state", slice(dim, 2 * dim)))
    ]
    table.append(Link(bias, f"{weight}.bias", shape[1:], there=_swap_gates, back=_swap_gates))
    if lstm.projected:
        table.append(_matrix(projection, f"{weight}.projection", (lstm.dim, dim)))
    return table


def linked_weights(
    config: BiLmConfig, table: Sequence[Link], read: Callable[[str], Array]
) -> LazyWeights:
    """Weights that are assembled on request; `read` reads an array by its name in `table`."""
    last: dict[str, Array] = {}  # one array, which often has several weights

    def dataset(name: str) -> Array:
        if name not in last:
            last.clear()  # frees the old array before the new one is read
            last[name] = read(name)
        return last[name]

    def weight(name: str, shape: tuple[int, ...]) -> Array:
        array = np.empty(shape, np.float32)
        for link in table:
            if link.weight == name:
                array[link.weight_rows] = link.there(dataset(link.dataset)[link.dataset_rows])
        return array

    return LazyWeights(
        {name: partial(weight, name, shape) for name, shape in weight_shapes(config).items()}
    )


def check_arrays(
    table: Sequence[Link], shapes: Shapes, options: str, weights: str, *, all_known: bool = False
) -> None:
    """Compare the arrays of a file with the options.

    With `all_known`, refuse every array that the options do not describe, not only further layers.
    """
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


def read_softmax(
    shapes: Shapes,
    read: Callable[[str], Array],
    shape: tuple[int, int],
    what: str,
    *,
    weight: str = "softmax/W",
) -> Softmax:
    """Read the output layer; its shape is (words of the vocabulary, projection_dim)."""
    for name, wanted in ((weight, shape), ("softmax/b", shape[:1])):
        if shapes.get(name) != wanted:
            raise FormatError(
                f"'{what}': {name} has shape {shapes.get(name)}, expected {wanted} from the "
                "vocabulary and the options; pass files that belong together"
            )
    return Softmax(read(weight), read("softmax/b"))


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

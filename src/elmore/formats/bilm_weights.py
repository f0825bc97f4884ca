"""From the arrays of bilm-tf, in whatever file, to our weights; checked before they are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from elmore._messages import shown
from elmore.config import BiLmConfig, weight_shapes
from elmore.errors import FormatError
from elmore.formats.bilm_datasets import Link
from elmore.formats.checkpoint import LazyWeights

__all__ = ["check_arrays", "linked_weights"]

Array = NDArray[np.float32]
Shapes = Mapping[str, tuple[int, ...]]


def linked_weights(
    config: BiLmConfig, table: Sequence[Link], read: Callable[[str], Array]
) -> LazyWeights:
    """Give weights that are put together from arrays when they are asked for.

    Args:
        config: the model.
        table: which array holds which part of which weight.
        read: gives an array by its name in `table`.
    """
    reader = _Reader(table, read)
    return LazyWeights(
        {name: reader.bind(name, shape) for name, shape in weight_shapes(config).items()}
    )


class _Reader:
    """Puts weights together from arrays; remembers the array that it read last."""

    def __init__(self, table: Sequence[Link], read: Callable[[str], Array]) -> None:
        self._table = table
        self._read = read
        self._last: tuple[str, Array] | None = None

    def bind(self, weight: str, shape: tuple[int, ...]) -> Callable[[], Array]:
        """Give a function that reads one weight."""
        return lambda: self.read(weight, shape)

    def read(self, weight: str, shape: tuple[int, ...]) -> Array:
        """Read one weight."""
        array = np.empty(shape, np.float32)
        for link in self._table:
            if link.weight == weight:
                array[link.weight_rows] = link.there(self._array(link.dataset)[link.dataset_rows])
        return array

    def _array(self, name: str) -> Array:
        if self._last is None or self._last[0] != name:
            self._last = None  # frees the old array before the new one is read
            self._last = (name, self._read(name))
        return self._last[1]


def check_arrays(
    table: Sequence[Link],
    shapes: Shapes,
    options: str,
    weights: str,
    *,
    all_known: bool = False,
) -> None:
    """Compare the arrays of a file with what the options ask for.

    Args:
        table: as the options ask for it.
        shapes: what is there.
        options: name of the options file, for messages.
        weights: name of the weights file, for messages.
        all_known: refuse every array that is not asked for, not only further layers.
    """
    for link in table:
        found = shapes.get(link.dataset)
        if found != link.shape:
            what = "is missing" if found is None else f"has shape {found}"
            raise FormatError(
                f"'{weights}': {link.dataset} {what}, '{options}' asks for {link.shape}; "
                f"pass the options that belong to these weights{_guess(shapes)}"
            )
    known = {link.dataset for link in table}
    for name in shapes:
        # A layer that the options do not name would silently be left out of the computation.
        layer = all_known or name.startswith(("CNN", "RNN_", "rnn/"))
        if layer and name not in known:
            raise FormatError(
                f"'{weights}' has {shown(name, 80)}, of which '{options}' knows nothing; "
                f"pass the options that belong to these weights{_guess(shapes)}"
            )


def _guess(shapes: Shapes) -> str:
    """Read the sizes off the arrays, to help to find the right options."""
    kernel = next((s for n, s in shapes.items() if n.endswith(("/W_0", "/kernel"))), None)
    if kernel is None or len(kernel) != 2:
        return ""
    highways = {match[0] for name in shapes if (match := re.match(r"CNN_high_\d+", name))}
    return (
        f" (they look like dim {kernel[1] // 4}, projection_dim {kernel[0] // 2}, "
        f"n_highway {len(highways)})"
    )

"""The arrays of one file by name, whatever container they are in."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.errors import FormatError

# Types that `floats` converts.
FLOATS = ("float16", "float32", "float64", "bfloat16")
_SEARCH = 1 << 20  # values checked at a time, to use little memory


class Arrays:
    """The arrays of a file, read on request.

    The file stays open as long as this object lives, or until `close`.

    Args:
        what: the file, for messages.
        shapes: the shape of each array.
        types: the type of each array as numpy calls it.
        read: reads one array; `Arrays` checks the values.
        close: closes the file.
    """

    def __init__(
        self,
        what: str,
        shapes: Mapping[str, tuple[int, ...]],
        types: Mapping[str, str],
        read: Callable[[str], NDArray[Any]],
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self.what = shown(what, 100)
        self.shapes = shapes
        self.types = types
        self._read = read
        self.close = weakref.finalize(self, close)  # lazy readers forget to close

    def read(self, name: str) -> NDArray[Any]:
        """Read an array in its own type; NaN and infinite values are refused."""
        if name not in self.shapes:
            raise FormatError(
                f"'{self.what}' has no array '{shown(name, 80)}'; check that it fits its config"
            )
        values = self._read(name)
        check_finite(values, what=f"'{self.what}'", name=name)
        return values

    def floats(self, name: str) -> NDArray[np.float32]:
        """Read an array of floats of any size as float32, C-contiguous."""
        if self.types.get(name, FLOATS[0]) not in FLOATS:
            raise FormatError(
                f"'{self.what}' has '{shown(name, 80)}' of type {self.types[name]}, expected a "
                "float type; convert it to float32"
            )
        raw = self.read(name)
        with np.errstate(over="ignore"):
            values = np.ascontiguousarray(raw, np.float32).reshape(raw.shape)
        if raw.dtype.itemsize > 4:  # a float64 may be too large
            check_finite(values, what=f"'{self.what}'", name=name)
        return values

    def renamed(self, names: Mapping[str, str]) -> Arrays:
        """Some of the arrays under other names: new name → name in the file."""
        return Arrays(
            self.what,
            {new: self.shapes[old] for new, old in names.items()},
            {new: self.types[old] for new, old in names.items()},
            lambda new: self._read(names[new]),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def check_finite(values: NDArray[Any], *, what: str, name: str) -> None:
    """Refuse an array with NaN or infinite values; integers pass.

    Raises:
        FormatError: names the file, the array and the first bad index.
    """
    if values.dtype.kind != "f":
        return
    flat = values.reshape(-1)
    for start in range(0, flat.size, _SEARCH):
        good = np.isfinite(flat[start : start + _SEARCH])
        if not good.all():
            position = start + int(np.argmin(good))
            index = tuple(int(i) for i in np.unravel_index(position, values.shape))
            raise FormatError(
                f"{shown(what, 100)} has {flat[position]} in '{shown(name, 80)}' at index {index}; "
                "weights must be finite, download or convert it again"
            )


def from_bytes(data: bytes, kind: str) -> NDArray[Any]:
    """Little-endian numbers of a type as numpy calls it, or "bfloat16"."""
    if kind != "bfloat16":
        return np.frombuffer(data, np.dtype(kind).newbyteorder("<"))
    # A bfloat16 is the upper half of a float32.
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)


def item_size(kind: str) -> int:
    """The bytes of a number of a type as numpy calls it, or "bfloat16"."""
    return 2 if kind == "bfloat16" else np.dtype(kind).itemsize

"""Numbers of a file that must be finite."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.errors import FormatError

__all__ = ["check_finite", "finite_float32"]

_SEARCH = 1 << 20  # values checked at a time, to use little memory


def check_finite(values: NDArray[Any], *, what: str, name: str) -> None:
    """Refuse a tensor with NaN or infinite values; integers pass.

    Raises:
        FormatError: names the file, the tensor and the first bad index.
    """
    if values.dtype.kind != "f":
        return
    flat = values.reshape(-1)
    for start in range(0, flat.size, _SEARCH):
        part = flat[start : start + _SEARCH]
        good = np.isfinite(part)
        if not good.all():
            place = start + int(np.argmin(good))
            index = tuple(int(i) for i in np.unravel_index(place, values.shape))
            raise FormatError(
                f"{shown(what, 100)} has {flat[place]} in '{shown(name, 80)}' at index {index}; "
                "weights must be finite, download or convert it again"
            )


def finite_float32(raw: NDArray[Any], *, what: str, name: str) -> NDArray[np.float32]:
    """Convert a tensor of floats to C-contiguous float32; arguments as in `check_finite`.

    Raises:
        FormatError: NaN, infinite, or a float64 too large for float32.
    """
    check_finite(raw, what=what, name=name)
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(raw, np.float32).reshape(raw.shape)
    if raw.dtype.itemsize > 4:
        check_finite(values, what=what, name=name)
    return values

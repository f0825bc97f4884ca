"""Weights in few bits: one scale for each output row, no calibration; the definition of int8."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SMALLEST", "STEPS", "Stored", "dequantize", "quantize"]

# Numbers on either side of zero; -128 does not occur, so that signs can be moved about.
STEPS = 127
# Rows whose largest value is below this are zero: their scale would not be a normal number.
SMALLEST = 1e-30


class Stored(NamedTuple):
    """A matrix in the numbers in which it is stored.

    Attributes:
        values: (n, k) of float32, float16 or int8.
        scales: what a row of int8 values is multiplied by, (n,); None for floats.
    """

    values: NDArray[Any]
    scales: NDArray[np.float32] | None = None


def quantize(weight: NDArray[np.float32]) -> Stored:
    """Round each row to 255 steps between plus and minus its largest value.

    Args:
        weight: (n, k).
    """
    largest = np.abs(weight).max(axis=1, initial=0)
    scales = np.where(largest > SMALLEST, largest / np.float32(STEPS), 0).astype(np.float32)
    divisors = np.where(scales > 0, scales, np.float32(np.inf))
    values = np.rint(weight / divisors[:, None]).astype(np.int8)  # half to even
    return Stored(values, scales)


def dequantize(stored: Stored) -> NDArray[np.float32]:
    """Give the float32 values that stored numbers stand for, (n, k)."""
    values = np.asarray(stored.values, np.float32)
    return values if stored.scales is None else values * stored.scales[:, None]

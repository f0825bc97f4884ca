"""Products with weight matrices that are only read: packed once, in float32, float16 or int8.

A row of a product depends on that row alone, bit for bit: the kernel sums every output in one
fixed order, whatever the number of rows. In int8 the activations are rounded row by row too, and
the integer sums are exact, so they are the same on every processor.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.compute.native import aligned, aligned_bytes, native, pointer, workspace

Array = NDArray[np.float32]

# Numbers of the kinds in native/panels.h.
KINDS = {"float32": 0, "float16": 1, "int8": 2}
# Steps of int8 on either side of zero; -128 does not occur, so that signs can be moved about.
STEPS = 127
# Rows whose largest value is below this are zero: their scale would not be a normal number.
_SMALLEST = np.float32(1e-30)
_GROUP = 64
# Steps of the second byte of an input in one step of the first: what rounding leaves over is at
# most a half, so 127 of them are enough.
_FINE_STEPS = np.float32(2 * STEPS)
# A sum of so many products of int8 is an integer below 2**24, which float32 holds exactly.
_EXACT = 1024
_HUGE_PAGE = 2 << 20


class Stored(NamedTuple):
    """A matrix in the numbers in which it is stored.

    Attributes:
        values: (n, k) of float32, float16 or int8.
        scales: what a row of int8 values is multiplied by, (n,); None for floats.
    """

    values: NDArray[Any]
    scales: Array | None = None

    def rows(self, at: Any) -> Stored:
        """Some rows, chosen as numpy does."""
        return Stored(self.values[at], None if self.scales is None else self.scales[at])


def quantize(weight: NDArray[np.floating[Any]]) -> Stored:
    """Round each row of (n, k) to 255 steps between plus and minus its maximum; defines int8."""
    weight = np.asarray(weight, np.float32)
    whole, scales = quantize_rows(weight)
    return Stored(whole.astype(np.int8), scales)


def quantize_rows(rows: Array) -> tuple[Array, Array]:
    """As `quantize`: integers from -127 to 127 as float32, (n, k), and their scales, (n,)."""
    whole, _, scales = quantize_finely(rows)
    return whole, scales


def quantize_finely(rows: Array) -> tuple[Array, Array, Array]:
    """As `quantize_rows`, with what rounding leaves over as a second integer.

    Returns:
        integers, the rest in steps of 1 / 254 from -127 to 127, both (n, k); and scales, (n,).
    """
    largest = np.abs(rows).max(axis=1, initial=0)
    zero = largest <= _SMALLEST
    scales = np.where(zero, np.float32(0), largest / np.float32(STEPS))
    factors = np.where(zero, np.float32(0), np.float32(STEPS) / np.where(zero, 1, largest))
    exact = rows * factors[:, None]
    whole = np.rint(exact)  # half to even
    rest = np.rint((exact - whole) * _FINE_STEPS)
    return whole, rest, scales


def dequantize(stored: Stored) -> Array:
    """The float32 values that stored numbers stand for, (n, k)."""
    values = np.asarray(stored.values, np.float32)
    return values if stored.scales is None else values * stored.scales[:, None]


class Matrix:
    """A weight matrix, ready to be multiplied with.

    Args:
        stored: its numbers, (n, k).
        gates: whether the rows are the four gates of an LSTM, which `compute.recurrence` reads.
        fine: with int8, round inputs to two bytes each, not one; ignored for floats.
    """

    def __init__(self, stored: Stored, *, gates: bool = False, fine: bool = False) -> None:
        self.shape: tuple[int, int] = stored.values.shape
        self.dtype = stored.values.dtype.name
        self.gates = gates
        # As in native/panels.h, where int8 with inputs of two bytes is a kind of its own.
        self.kind = KINDS[self.dtype] + (fine and self.dtype == "int8")
        chosen = native()
        # In float32 numpy's BLAS is faster than our plain C.
        usable = chosen.vectors or self.dtype != "float32"
        self._module: Any = chosen.module if usable else None
        # For numpy: float32 values, which are integers for int8, and scales.
        self.values: Array | None = None
        self.scales: Array | None = None
        self._owned: tuple[object, ...] = ()
        if self._module is None:
            self.values = np.array(stored.values, np.float32)
            self.scales = None if stored.scales is None else stored.scales.copy()
        else:
            self._pack(stored)

    @property
    def packed(self) -> bool:
        """Whether C can read it."""
        return self._module is not None

    def _pack(self, stored: Stored) -> None:
        (n, k), kind = self.shape, self.kind
        # A group holds the four gates of the same 16 cells, so that a step finds them in one place.
        columns = 4 * _up(n // 4, _GROUP // 4) if self.gates else _up(n, _GROUP)
        values = np.ascontiguousarray(stored.values)
        panels = _aligned(self._module.panels_bytes(columns, k, kind))
        sums = np.zeros(columns, np.int32)
        scales = np.zeros(columns, np.float32)
        if stored.scales is not None:
            scales[:n] = stored.scales
            if self.gates:
                scales = _interleave(stored.scales, columns)
        self._module.panels_pack(
            panels.ctypes.data, sums.ctypes.data, values.ctypes.data, n, k, kind, int(self.gates)
        )
        self._owned = (panels, scales, sums)
        self.argument = (panels.ctypes.data, scales.ctypes.data, sums.ctypes.data, n, k, kind)

    def affine(self, inputs: Array, bias: Array | None = None, clip: float | None = None) -> Array:
        """Multiply rows of float32, add a bias, (n,), and clip: (rows, k) to (rows, n)."""
        if self._module is None:
            return self._reference(inputs, bias, clip)
        (n, k), rows = self.shape, inputs.shape[0]
        inputs = np.ascontiguousarray(inputs)
        output = aligned(rows, n)
        self._module.panels_affine(
            pointer(output, rows, n),
            self.argument,
            pointer(inputs, rows, k),
            0 if bias is None else pointer(bias, n),
            workspace(self._module.panels_workspace(k, self.kind)),
            float("inf") if clip is None else clip,
            rows,
        )
        return output

    def _reference(self, inputs: Array, bias: Array | None, clip: float | None) -> Array:
        """Multiply in numpy; the definition of the kernel."""
        if self.values is None:
            raise RuntimeError("a packed matrix has no values for numpy")
        if self.scales is None:
            output = inputs @ self.values.T
        else:
            whole, rest, scales = quantize_finely(inputs)
            output = exact_product(whole, self.values).astype(np.float32)
            if self.kind > KINDS["int8"]:
                output += exact_product(rest, self.values).astype(np.float32) * (1 / _FINE_STEPS)
            output *= scales[:, None] * self.scales
        if bias is not None:
            output += bias
        if clip is not None:
            np.clip(output, -clip, clip, out=output)
        return output


def exact_product(rows: Array, weights: Array) -> NDArray[np.int32]:
    """Multiply integers from -127 to 127, given as float32, without rounding.

    (n_rows, k) times (n, k) transposed gives (n_rows, n).
    """
    sums = np.zeros((len(rows), len(weights)), np.int32)
    for first in range(0, rows.shape[1], _EXACT):
        columns = slice(first, first + _EXACT)
        sums += (rows[:, columns] @ weights[:, columns].T).astype(np.int32)
    return sums


def _interleave(scales: Array, columns: int) -> Array:
    """Put the scales of four gates where the packed columns are, (columns,)."""
    cells = len(scales) // 4
    padded = np.zeros((4, columns // 4), np.float32)
    padded[:, :cells] = scales.reshape(4, cells)
    return np.ascontiguousarray(padded.reshape(4, -1, 16).transpose(1, 0, 2)).reshape(-1)


def _aligned(size: int) -> NDArray[np.uint8]:
    """Reserve memory for panels, in huge pages where the system gives them for the asking."""
    if size < _HUGE_PAGE or sys.platform != "linux":
        return aligned_bytes(np.empty(size + 64, np.uint8), size)
    pages = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError, AttributeError):  # a kernel or Python without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    return aligned_bytes(np.frombuffer(pages, np.uint8), size, _HUGE_PAGE)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit

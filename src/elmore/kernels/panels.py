"""Products with weight matrices that are only read: packed once, in float32, float16 or int8.

A row of a product depends on that row alone, bit for bit: the kernel sums every output in one
fixed order, whatever the number of rows. In int8 the activations are rounded row by row too, and
the integer sums are exact, so they are the same on every processor.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmore.kernels._check import pointer, workspace
from elmore.kernels._load import native
from elmore.kernels.quantize import SMALLEST, STEPS, Stored

__all__ = ["KINDS", "Matrix", "exact_product", "quantize_rows"]

# Numbers of the kinds in native/panels.h.
KINDS = {"float32": 0, "float16": 1, "int8": 2}
_GROUP = 64
# A sum of so many products of int8 is a whole number below 2**24, which float32 holds exactly.
_EXACT = 1024
_HUGE_PAGE = 2 << 20


class Matrix:
    """A weight matrix, ready to be multiplied with.

    Args:
        stored: its numbers, (n, k).
        gates: whether the rows are the four gates of an LSTM, which `kernels.recurrence` reads.
    """

    def __init__(self, stored: Stored, *, gates: bool = False) -> None:
        self.shape: tuple[int, int] = stored.values.shape
        self.kind = stored.values.dtype.name
        self.gates = gates
        self._module: Any = native().module
        # The twin's form: float32 values, which are whole numbers for int8, and scales.
        self.values: Tensor | None = None
        self.scales: Tensor | None = None
        self._owned: tuple[object, ...] = ()
        if self._module is None:
            self.values = torch.from_numpy(np.array(stored.values, np.float32))
            if stored.scales is not None:
                self.scales = torch.from_numpy(stored.scales.copy())
        else:
            self._pack(stored)

    @property
    def packed(self) -> bool:
        """Whether C can read it."""
        return self._module is not None

    def _pack(self, stored: Stored) -> None:
        (n, k), kind = self.shape, KINDS[self.kind]
        columns = 4 * _up(n // 4, _GROUP // 4) if self.gates else _up(n, _GROUP)
        values = np.ascontiguousarray(stored.values)
        panels = _room(self._module.panels_bytes(columns, k, kind))
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

    def affine(
        self, inputs: Tensor, bias: Tensor | None = None, clip: float | None = None
    ) -> Tensor:
        """Multiply rows, add a bias and clip.

        Args:
            inputs: (rows, k), float32.
            bias: (n,).
            clip: bound of the results.

        Returns:
            (rows, n).
        """
        if self._module is None:
            return self._twin(inputs, bias, clip)
        (n, k), rows = self.shape, inputs.shape[0]
        inputs = inputs.contiguous()
        output = torch.empty(rows, n, dtype=torch.float32)
        self._module.panels_affine(
            pointer(output, rows, n),
            self.argument,
            pointer(inputs, rows, k),
            0 if bias is None else pointer(bias, n),
            workspace(self._module.panels_workspace(k, self.argument[5])),
            float("inf") if clip is None else clip,
            rows,
        )
        return output

    def _twin(self, inputs: Tensor, bias: Tensor | None, clip: float | None) -> Tensor:
        """Multiply in torch; the definition of the kernel."""
        if self.values is None:
            raise RuntimeError("a packed matrix has no twin")
        if self.scales is None:
            output = inputs @ self.values.t()
        else:
            whole, scales = quantize_rows(inputs)
            sums = exact_product(whole, self.values)
            output = sums.float() * (scales[:, None] * self.scales)
        if bias is not None:
            output += bias
        return output if clip is None else output.clamp_(-clip, clip)


def quantize_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row to 255 steps between plus and minus its largest value.

    Args:
        rows: (n, k).

    Returns:
        whole numbers from -127 to 127 as float32, (n, k); what to multiply them by, (n,).
    """
    largest = rows.abs().amax(dim=1)
    scales = torch.where(largest > SMALLEST, largest / STEPS, torch.zeros_like(largest))
    divisors = torch.where(scales > 0, scales, torch.full_like(scales, float("inf")))
    return torch.round(rows / divisors[:, None]), scales


def exact_product(rows: Tensor, weights: Tensor) -> Tensor:
    """Multiply matrices of whole numbers from -127 to 127, given as float32, without rounding.

    Args:
        rows: (n_rows, k).
        weights: (n, k).

    Returns:
        int32 sums, (n_rows, n).
    """
    sums = torch.zeros(len(rows), len(weights), dtype=torch.int32)
    for first in range(0, rows.shape[1], _EXACT):
        piece = slice(first, first + _EXACT)
        sums += (rows[:, piece] @ weights[:, piece].t()).to(torch.int32)
    return sums


def _interleave(scales: NDArray[np.float32], columns: int) -> NDArray[np.float32]:
    """Put the scales of four gates where the packed columns stand, (columns,)."""
    cells = len(scales) // 4
    padded = np.zeros((4, columns // 4), np.float32)
    padded[:, :cells] = scales.reshape(4, cells)
    return np.ascontiguousarray(padded.reshape(4, -1, 16).transpose(1, 0, 2)).reshape(-1)


def _room(size: int) -> NDArray[np.uint8]:
    """Reserve memory for panels, in huge pages where the system gives them for the asking."""
    if size < _HUGE_PAGE or sys.platform != "linux":
        space = np.empty(size + 64, np.uint8)
        first = -space.ctypes.data % 64
        return space[first : first + size]
    room = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError, AttributeError):  # a kernel or Python without them
        room.madvise(mmap.MADV_HUGEPAGE)
    space = np.frombuffer(room, np.uint8)
    first = -space.ctypes.data % _HUGE_PAGE
    return space[first : first + size]


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit

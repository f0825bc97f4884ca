"""Raw pointers for C: what must hold before one is given, and scratch memory."""

from __future__ import annotations

import threading

import numpy as np
import torch
from torch import Tensor

from elmore.errors import NativeError

__all__ = ["pointer", "workspace"]

_local = threading.local()


def pointer(tensor: Tensor, *shape: int) -> int:
    """Give the address of a tensor's memory, after looking at everything that C relies on.

    Args:
        tensor: float32.
        shape: what it must have.
    """
    if (
        tensor.dtype is not torch.float32
        or not tensor.is_cpu
        or tensor.shape != shape
        or not tensor.is_contiguous()
    ):
        raise NativeError(
            f"a kernel got {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}, expected "
            f"contiguous float32 {shape} on the CPU; report this, or set ELMORE_NATIVE=0"
        )
    return tensor.data_ptr()


def workspace(size: int) -> int:
    """Give the address of this thread's scratch memory, which any kernel of the thread may use.

    It grows and is kept: fresh pages cost more than the work of a step.
    """
    room: tuple[int, int, object] = getattr(_local, "room", (0, 0, None))
    if room[0] < size or room[2] is None:
        fresh = np.empty(size, np.uint8)
        room = _local.room = (size, fresh.ctypes.data, fresh)
    return room[1]

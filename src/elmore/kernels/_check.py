"""What must hold before a raw pointer goes to C."""

from __future__ import annotations

import torch
from torch import Tensor

from elmore.errors import NativeError

__all__ = ["pointer"]


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

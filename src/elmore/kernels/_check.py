"""What must hold before a raw pointer goes to C."""

from __future__ import annotations

from typing import Any

from elmore.errors import NativeError

__all__ = ["pointer"]


def pointer(tensor: Any, *shape: int) -> int:
    """Give the address of a tensor's memory, after looking at everything that C relies on.

    Args:
        tensor: a torch tensor.
        shape: what it must have.
    """
    if (
        str(tensor.dtype) != "torch.float32"
        or tensor.device.type != "cpu"
        or not tensor.is_contiguous()
        or tuple(tensor.shape) != shape
    ):
        raise NativeError(
            f"a kernel got {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}, expected "
            f"contiguous float32 {shape} on the CPU; report this, or set ELMORE_NATIVE=0"
        )
    return int(tensor.data_ptr())

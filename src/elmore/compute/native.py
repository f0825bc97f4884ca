"""The C extension: whether to use it (ELMORE_NATIVE), and what it may be given."""

from __future__ import annotations

import importlib
import math
import os
import threading
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.errors import ConfigError, NativeError

_local = threading.local()
# Bytes of a cache line.
_LINE = 64


class Native(NamedTuple):
    """The extension, or None where numpy computes, and why."""

    module: ModuleType | None
    reason: str

    @property
    def vectors(self) -> bool:
        """Whether it has kernels for this processor besides plain C."""
        return self.module is not None and bool(self.module.cpu())


def native() -> Native:
    """Load the extension as ELMORE_NATIVE (0, auto, require) asks.

    Raises:
        NativeError: it is required and cannot be loaded.
    """
    return _load(os.environ.get("ELMORE_NATIVE", "auto"))


# By choice, not once for all: tests and benchmarks change the variable while they run.
@lru_cache(maxsize=4)
def _load(choice: str) -> Native:
    if choice not in ("0", "auto", "require"):
        raise ConfigError(f"ELMORE_NATIVE={choice!r}; use 0, auto or require")
    if choice == "0":
        return Native(None, "switched off by ELMORE_NATIVE=0")
    try:
        module = importlib.import_module("elmore._native")
    except ImportError as error:
        if choice == "require":
            raise NativeError(
                f"ELMORE_NATIVE=require but the extension cannot be loaded ({error}); "
                "install a C compiler and reinstall elmore"
            ) from None
        return Native(None, "not built: there was no C compiler when elmore was installed")
    return Native(module, "loaded; instruction sets: " + (", ".join(module.cpu()) or "plain C"))


def pointer(array: NDArray[Any], *shape: int) -> int:
    """The address of an array, after checking all that C relies on: float32, shape, order."""
    facts = array.__array_interface__
    # Without strides an array is contiguous in C's order.
    if facts["typestr"] != "<f4" or facts["shape"] != shape or facts["strides"] is not None:
        raise NativeError(
            f"a kernel got {array.dtype} {array.shape}, expected contiguous float32 {shape}; "
            "report this, or set ELMORE_NATIVE=0"
        )
    return int(facts["data"][0])


def aligned(*shape: int) -> NDArray[np.float32]:
    """An array of float32 whose memory starts at a cache line, with arbitrary values.

    Vector stores that cross cache lines cost the kernels a few per cent; numpy aligns to 16 bytes.
    """
    size = math.prod(shape)
    space = np.empty(size + _LINE // 4, np.float32)
    first = (-space.__array_interface__["data"][0] % _LINE) // 4
    return space[first : first + size].reshape(shape)


def aligned_bytes(space: NDArray[np.uint8], size: int, unit: int = _LINE) -> NDArray[np.uint8]:
    """The `size` bytes of larger memory that start at a multiple of `unit`."""
    first = -space.ctypes.data % unit
    return space[first : first + size]


def workspace(size: int) -> int:
    """The address of this thread's scratch memory, which any kernel of the thread may use.

    It grows and is kept: fresh pages cost more than the work of a step.
    """
    space: tuple[int, int, object] = getattr(_local, "space", (0, 0, None))
    if space[0] < size or space[2] is None:
        fresh = aligned_bytes(np.empty(size + _LINE, np.uint8), size)
        space = _local.space = (size, fresh.ctypes.data, fresh)
    return space[1]

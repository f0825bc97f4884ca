"""The choice between the C extension and the twins (ELMORE_NATIVE)."""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

from elmore.errors import ConfigError, NativeError

__all__ = ["Native", "native"]


class Native(NamedTuple):
    """What was chosen.

    Attributes:
        module: the extension, or None where the twins run.
        reason: why, in a few words.
    """

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

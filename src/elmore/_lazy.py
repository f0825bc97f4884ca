"""Public names that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from elmore._extras import missing_extra

__all__ = ["lazy_names"]


def lazy_names(
    package: str, table: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package.

    Args:
        package: its name, for messages.
        table: public name to the module that holds it.
    """

    def get(name: str) -> Any:
        if name not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(table[name])
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise missing_extra("torch", "torch", f"{package}.{name}") from None
        return module if table[name] == f"{package}.{name}" else getattr(module, name)

    def names() -> list[str]:
        return sorted({*table, *getattr(sys.modules[package], "__all__", ())})

    return get, names

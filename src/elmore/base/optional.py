"""Imports that may fail (optional packages) or that wait (names imported on first use)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from elmore.errors import MissingExtra

# Plain `torch` brings gigabytes of CUDA on Linux, which a laptop has no use for.
_CPU_BUILD = (
    "; without a GPU, first `pip install torch --index-url https://download.pytorch.org/whl/cpu`"
)


def require(module: str, extra: str, what: str) -> ModuleType:
    """Import an optional package, which `extra` installs; `what` needs it, for the message.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A package that is there but lacks a part of its own is another matter.
        if error.name != module.partition(".")[0]:
            raise
        raise missing_extra(module, extra, what) from None


def missing_extra(module: str, extra: str, what: str) -> MissingExtra:
    """The error that says which extra brings a package."""
    package = module.partition(".")[0]
    hint = _CPU_BUILD if package == "torch" else ""
    # `pip install elmore[...]` works once elmore is on PyPI; until then this does.
    command = f"in a clone: `pip install '.[{extra}]'`{hint}"
    return MissingExtra(f"{what} needs {package}; install elmore[{extra}] ({command})")


def lazy_names(
    package: str, table: Mapping[str, str], extra: str = "torch"
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package whose names are imported on first use.

    PEP 562. It keeps `import elmore` fast, and lets a name say which extra it needs.

    Args:
        package: its name, for messages.
        table: public name to the module that holds it.
        extra: what brings torch, and all else that the package needs.
    """

    def get(name: str) -> Any:
        if name not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(table[name])
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise missing_extra("torch", extra, f"{package}.{name}") from None
        # A name may be a submodule itself, such as elmore.tasks.
        return module if table[name] == f"{package}.{name}" else getattr(module, name)

    def names() -> list[str]:
        return sorted({*table, *getattr(sys.modules[package], "__all__", ())})

    return get, names

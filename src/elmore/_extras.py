"""Optional packages: import one, or say which extra brings it."""

from __future__ import annotations

import importlib
from types import ModuleType

from elmore.errors import MissingExtra

__all__ = ["require"]


def require(module: str, extra: str, what: str) -> ModuleType:
    """Import an optional package.

    Args:
        module: its import name.
        extra: the extra of elmore that installs it.
        what: what needs it, for the message.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A package that is there but lacks a part of its own is another matter.
        if error.name != module.partition(".")[0]:
            raise
        raise MissingExtra(
            f"{what} needs {module.partition('.')[0]}; install elmore[{extra}]"
        ) from None

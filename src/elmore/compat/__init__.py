"""Old libraries' call signatures over elmore's parts, under the module paths that they had.

`install()` lets code that imports an old library run unedited.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from elmore.base.optional import lazy_names
from elmore.errors import ConfigError

# Old package -> where its names are in elmore.
LIBRARIES = {
    "allennlp": "elmore.compat.allennlp",
    "bilm": "elmore.compat.bilm",
    "elmoformanylangs": "elmore.compat.manylangs",
    "simple_elmo": "elmore.compat.simple_elmo",
}


def add_modules(package: str, paths: Mapping[str, str], homes: Mapping[str, str]) -> None:
    """Make the modules that a library had inside a package of ours.

    They hold no code. They are put into `sys.modules`, where the import system looks before it
    looks for files. A name is imported from its home when it is first used.

    Args:
        package: its full name; it is being imported.
        paths: path below the package -> the names that the old module had; parents come first.
        homes: name -> the module of ours that defines it.
    """
    for path, names in paths.items():
        full = f"{package}.{path}"
        module: Any = ModuleType(full, f"Names of the old module `{path}`.")
        module.__all__ = names.split()
        module.__getattr__, module.__dir__ = lazy_names(
            full, {name: homes[name] for name in module.__all__}
        )
        # Marks it as a package, so that a missing submodule is reported by its own name.
        module.__path__ = []
        sys.modules[full] = module
        parent, _, child = full.rpartition(".")
        setattr(sys.modules[parent], child, module)


def install() -> None:
    """Let `import allennlp`, `bilm`, `simple_elmo`, `elmoformanylangs` find `elmore.compat`.

    An installed library of that name is hidden, in this process only.

    Raises:
        ConfigError: one of them is already imported.
    """
    for old, ours in LIBRARIES.items():
        package = importlib.import_module(ours)
        if sys.modules.get(old, package) is not package:
            raise ConfigError(f"{old!r} is already imported; call elmore.compat.install before it")
    for name, module in list(sys.modules.items()):
        for old, ours in LIBRARIES.items():
            if name == ours or name.startswith(f"{ours}."):
                sys.modules[old + name.removeprefix(ours)] = module


# The package's own name; ours is shorter.
add_modules(
    __name__,
    {"elmoformanylangs": "Embedder", "elmoformanylangs.elmo": "Embedder"},
    {"Embedder": "elmore.compat.manylangs"},
)

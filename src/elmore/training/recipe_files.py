"""The recipes that ship with elmore, as text."""

from __future__ import annotations

import difflib
from pathlib import Path

from elmore.errors import ConfigError

__all__ = ["recipe_names", "recipe_text"]

_FOLDER = Path(__file__).parent / "recipes"


def recipe_names() -> list[str]:
    """List the shipped recipes."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def recipe_text(name: str) -> str:
    """Give the text of a shipped recipe."""
    if name not in recipe_names():
        near = difflib.get_close_matches(name, recipe_names(), 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"no recipe is called {name!r}; {hint}use one of {', '.join(recipe_names())} or the "
            "path of a .toml file"
        )
    return (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")

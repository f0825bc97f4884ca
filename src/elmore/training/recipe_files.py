"""The recipes that ship with elmore, as text."""

from __future__ import annotations

import difflib
from pathlib import Path

from elmore.errors import ConfigError

__all__ = ["recipe_names", "recipe_text"]

_FOLDER = Path(__file__).parent / "recipes"


def recipe_names(folder: Path = _FOLDER) -> list[str]:
    """List the shipped recipes of a folder, those of pretraining by default."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def recipe_text(name: str, folder: Path = _FOLDER) -> str:
    """Give the text of a shipped recipe."""
    if name not in recipe_names(folder):
        near = difflib.get_close_matches(name, recipe_names(folder), 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"no recipe is called {name!r}; {hint}use one of {', '.join(recipe_names(folder))} or "
            "the path of a .toml file"
        )
    return (folder / f"{name}.toml").read_text(encoding="utf-8")

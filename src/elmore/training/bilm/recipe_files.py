"""Recipe files: those that ship with elmore, and from TOML and JSON to the sections of a recipe."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elmore.errors import ConfigError

__all__ = [
    "MISSING",
    "override",
    "read_recipe",
    "recipe_names",
    "recipe_text",
    "task_recipe_names",
    "task_recipe_text",
]

# What to do about a missing key or section of a recipe, for messages.
MISSING = "copy a recipe with `elmore pretrain --show-recipe laptop`"
_FOLDER = Path(__file__).parent / "recipes"
# Only a path: the modules of the tasks need torch, and listing recipes works without it.
_TASK_FOLDER = Path(__file__).parents[2] / "tasks" / "recipes"


def recipe_names(folder: Path = _FOLDER) -> list[str]:
    """The shipped recipes of a folder, those of pretraining by default."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def recipe_text(name: str, folder: Path = _FOLDER) -> str:
    """The text of a shipped recipe."""
    if name not in recipe_names(folder):
        near = difflib.get_close_matches(name, recipe_names(folder), 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"no recipe is called {name!r}; {hint}use one of {', '.join(recipe_names(folder))} or "
            "the path of a .toml file"
        )
    return (folder / f"{name}.toml").read_text(encoding="utf-8")


def task_recipe_names() -> list[str]:
    """The shipped recipes of tasks, such as ner-laptop."""
    return recipe_names(_TASK_FOLDER)


def task_recipe_text(name: str) -> str:
    """The text of a shipped recipe of a task."""
    return recipe_text(name, _TASK_FOLDER)


def read_recipe(
    source: str | Path, overrides: Mapping[str, str] | None, *, named: Callable[[str], str]
) -> dict[str, Any]:
    """Read a recipe as TOML values.

    Args:
        source: the path of a .toml file, or a name.
        overrides: "section.key" to a value in TOML's notation, as `--set` gives them.
        named: gives the text of a recipe that ships under a name.
    """
    path = Path(source)
    text = named(str(source)) if path.suffix != ".toml" else _read(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"recipe '{path}' is not valid TOML: {error}; correct it") from None
    override(data, overrides or {})
    data.setdefault("name", path.stem)
    return data


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise ConfigError(f"recipe '{path}' cannot be read; check the path") from None
    except UnicodeDecodeError:
        raise ConfigError(f"recipe '{path}' is not UTF-8; save it so") from None


def override(data: dict[str, Any], settings: Mapping[str, str]) -> None:
    """Change keys of a recipe: "section.key" to a value in TOML's notation."""
    for key, text in settings.items():
        _override(data, key, text)


def _override(data: dict[str, Any], key: str, text: str) -> None:
    section, _, name = key.partition(".")
    if not name:
        places = [name for name, part in data.items() if isinstance(part, dict) and key in part]
        example = f"{places[0]}.{key}={text}" if places else "optimizer.lr=0.002"
        raise ConfigError(f"--set {key}={text}: name the section too, e.g. {example}")
    if section == "name" or not isinstance(data.setdefault(section, {}), dict):
        raise ConfigError(
            f"--set {key}={text}: {section!r} is not a section; see `elmore pretrain --recipes`"
        )
    if text == "null":  # TOML has no word for it
        data[section][name] = None
        return
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word is a string
    data[section][name] = value

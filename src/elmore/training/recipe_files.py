"""Recipe files: those that ship with elmore, and from TOML and JSON to the sections of a recipe."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from elmore.config import filters_from_json
from elmore.errors import ConfigError

__all__ = [
    "Bound",
    "check_bounds",
    "is_positive",
    "is_share",
    "read_recipe",
    "recipe_names",
    "recipe_text",
    "section_from_json",
    "sections_from_json",
    "task_recipe_names",
    "task_recipe_text",
    "unknown_key",
]

_FOLDER = Path(__file__).parent / "recipes"
# Only a path: the modules of the tasks need torch, and `elmore recipes` works without it.
_TASK_FOLDER = Path(__file__).parents[1] / "tasks" / "recipes"


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
    source: str | Path,
    overrides: Mapping[str, str] | None,
    *,
    named: Callable[[str], str],
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
    for key, value in (overrides or {}).items():
        _override(data, key, value)
    data.setdefault("name", path.stem)
    return data


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise ConfigError(f"recipe '{path}' cannot be read; check the path") from None
    except UnicodeDecodeError:
        raise ConfigError(f"recipe '{path}' is not UTF-8; save it so") from None


def sections_from_json(
    data: Mapping[str, Any], kinds: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """Build all sections of a recipe from parsed TOML or JSON.

    Args:
        data: the recipe.
        kinds: the dataclass of each section; `name` is a string, not a section.
        what: the recipe's name, for messages.
    """
    sections = [name for name in kinds if name != "name"]
    for key in data:
        if key not in kinds:
            raise ConfigError(unknown_key(what, key, sections))
    values: dict[str, Any] = {"name": str(data.get("name", "own"))}
    for key in sections:
        values[key] = section_from_json(data.get(key), kinds[key], f"{what}: {key}")
    return values


def section_from_json(data: Any, kind: type, what: str) -> Any:
    """Build a section, a dataclass, from values; unknown and missing keys are errors."""
    if not isinstance(data, dict):
        raise ConfigError(f"{what} is missing; copy a recipe with `elmore recipes show laptop`")
    hints = get_type_hints(kind)
    for key in data:
        if key not in hints:
            raise ConfigError(unknown_key(what, key, list(hints)))
    # Keys that came later have defaults, so that older recipes and runs still load.
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(kind)
        if field.default is not dataclasses.MISSING
    }
    data = {**defaults, **data}
    values = {}
    for key, hint in hints.items():
        # TOML has no null: a key that may be None is left out for None.
        if key not in data and type(None) not in get_args(hint):
            raise ConfigError(f"{what}.{key} is missing; every key of a recipe must be there")
        values[key] = _value(data.get(key), hint, f"{what}.{key}")
    return kind(**values)


def _value(value: Any, hint: Any, what: str) -> Any:
    if get_origin(hint) in (Union, UnionType):
        if value in (None, "none"):
            return None
        hint = next(choice for choice in get_args(hint) if choice is not type(None))
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ConfigError(
                f"{what}={value!r}; use one of {', '.join(map(repr, get_args(hint)))}"
            )
        return value
    if hint == tuple[int, ...]:
        if not isinstance(value, list | tuple) or not all(type(n) is int for n in value):
            raise ConfigError(f"{what}={value!r} must be a list of whole numbers; correct it")
        return tuple(value)
    if get_origin(hint) is tuple:
        return filters_from_json(value, what=what)
    # `lr = 1` is an int to TOML, and true is an int to Python.
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{what}={value!r} must be a {hint.__name__}; correct it")
    return value


class Bound(NamedTuple):
    """Which values some keys may have.

    Attributes:
        keys: "section.key", separated by spaces.
        allowed: how messages say it.
        holds: the test; None is always allowed where the type allows it.
    """

    keys: str
    allowed: str
    holds: Callable[[float], bool]


def is_positive(value: float) -> bool:
    """Whether a number is positive and finite."""
    return 0 < value < float("inf")


def is_share(value: float) -> bool:
    """Whether a number is from 0 to below 1."""
    return 0 <= value < 1


def check_bounds(recipe: object, bounds: Iterable[Bound]) -> None:
    """Check the values of a recipe.

    Raises:
        ConfigError: naming the first key that is out of its bounds.
    """
    for keys, allowed, holds in bounds:
        for key in keys.split():
            section, name = key.split(".")
            value = getattr(getattr(recipe, section), name)
            if value is not None and not holds(value):
                raise ConfigError(f"{key}={value!r}; use {allowed}")


def _override(data: dict[str, Any], key: str, text: str) -> None:
    section, _, name = key.partition(".")
    if not name:
        places = [name for name, part in data.items() if isinstance(part, dict) and key in part]
        example = f"{places[0]}.{key}={text}" if places else "optimizer.lr=0.002"
        raise ConfigError(f"--set {key}={text}: name the section too, e.g. {example}")
    if section == "name" or not isinstance(data.setdefault(section, {}), dict):
        raise ConfigError(f"--set {key}={text}: {section!r} is not a section; see `elmore recipes`")
    if text == "null":  # TOML has no word for it
        data[section][name] = None
        return
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word is a string
    data[section][name] = value


def unknown_key(what: str, key: str, known: list[str]) -> str:
    """The message that a key is unknown, with the nearest known one."""
    near = difflib.get_close_matches(key, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    return f"{what} has an unknown key {key!r}; {hint}"

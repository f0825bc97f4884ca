"""Recipe files: those that ship with elmore, and from TOML and JSON to the sections of a recipe."""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from elmore.errors import ConfigError

__all__ = [
    "MISSING",
    "key",
    "override",
    "read_recipe",
    "recipe_names",
    "recipe_text",
    "shipped_text",
    "task_recipe_names",
    "task_recipe_text",
]

# What to do about a missing key or section of a recipe, for messages.
MISSING = "copy a recipe with `elmore pretrain --show-recipe laptop`"
_COLUMN = 40  # longer lines of a recipe have their comment above
_FOLDER = Path(__file__).parent / "recipes"
# Only a path: the modules of the tasks need torch, and listing recipes works without it.
_TASK_FOLDER = Path(__file__).parents[2] / "tasks" / "recipes"


def recipe_names(folder: Path = _FOLDER) -> list[str]:
    """The shipped recipes of a folder, those of pretraining by default."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def recipe_text(name: str) -> str:
    """A shipped recipe with all its keys, each with its value and what it does."""
    from elmore.training.bilm.recipe import Recipe  # which is made of the fields of this module

    lines = shipped_text(name).split("\n")
    heading = [line for line in lines if line.startswith("#")]
    return "\n".join([*heading, *_render(Recipe.load(name))]) + "\n"


def _render(recipe: Any) -> Iterator[str]:
    for section in dataclasses.fields(recipe):
        values = getattr(recipe, section.name)
        if not dataclasses.is_dataclass(values):
            continue
        yield f"\n[{section.name}]"
        rows = []
        for field in dataclasses.fields(values):
            value = getattr(values, field.name)
            if value is None and field.default is None:
                row = f"# {field.name} = {_toml(field.metadata['example'])}"
            else:
                row = f"{field.name} = {_toml(value)}"
            rows.append((row, field.metadata["comment"]))
        width = max(len(row) for row, _ in rows if len(row) <= _COLUMN)
        for row, comment in rows:
            yield from (
                [f"{row:<{width}}  # {comment}"] if len(row) <= width else [f"# {comment}", row]
            )


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000:
        return f"{value:_}"
    return json.dumps("null" if value is None else value)


def shipped_text(name: str, folder: Path = _FOLDER) -> str:
    """The file of a shipped recipe: what differs from the defaults."""
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
    return shipped_text(name, _TASK_FOLDER)


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
        data: dict[str, Any] = _without_null(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"recipe '{path}' is not valid TOML: {error}; correct it") from None
    override(data, overrides or {})
    data.setdefault("name", path.stem)
    return data


def _without_null(value: Any) -> Any:
    """TOML has no word for None: in recipes it is "null"."""
    if isinstance(value, dict):
        return {name: _without_null(item) for name, item in value.items()}
    return None if value == "null" else value


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise ConfigError(f"recipe '{path}' cannot be read; check the path") from None
    except UnicodeDecodeError:
        raise ConfigError(f"recipe '{path}' is not UTF-8; save it so") from None


def key(default: Any, comment: str, *, example: Any = None) -> Any:
    """Declare a key of a recipe; `example` is shown where it has no value."""
    return dataclasses.field(default=default, metadata={"comment": comment, "example": example})


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
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word is a string
    data[section][name] = _without_null(value)

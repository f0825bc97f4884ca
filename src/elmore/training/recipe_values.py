"""Recipes as TOML values."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elmore.errors import ConfigError

__all__ = ["MISSING", "read_recipe"]

# What to do about a missing key or section of a recipe, for messages.
MISSING = "copy a recipe with `elmore recipes show laptop`"


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
        raise ConfigError(f"recipe '{path}' is no TOML: {error}; correct it") from None
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


def _override(data: dict[str, Any], key: str, text: str) -> None:
    section, _, name = key.partition(".")
    if not name:
        places = [name for name, part in data.items() if isinstance(part, dict) and key in part]
        example = f"{places[0]}.{key}={text}" if places else "optimizer.lr=0.002"
        raise ConfigError(f"--set {key}={text}: name the section too, e.g. {example}")
    if section == "name" or not isinstance(data.setdefault(section, {}), dict):
        raise ConfigError(f"--set {key}={text}: {section!r} is no section; see `elmore recipes`")
    if text == "null":  # TOML has no word for it
        data[section][name] = None
        return
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word is a string
    data[section][name] = value

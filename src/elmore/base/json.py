"""Strict JSON, and checked values of dataclasses from JSON and TOML.

Parsing is bounded in time and memory, and accepts no value that another reader would see otherwise.
Dataclasses state what their fields may be; msgspec compares.
"""

from __future__ import annotations

import codecs
import dataclasses
import difflib
import functools
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from elmore.base.io import open_checked
from elmore.base.messages import shown
from elmore.errors import ConfigError, ElmoreError, FormatError
from elmore.limits import LIMITS

# Numbers of recipes, manifests and configs, with their bounds. TOML can say inf and nan.
_LARGEST = 1e308
Whole = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
NonNegative = Annotated[float, Meta(ge=0, le=_LARGEST)]
Positive = Annotated[float, Meta(gt=0, le=_LARGEST)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
BelowOne = Annotated[float, Meta(ge=0, lt=1)]

# A string, which may lack its end; the possessive quantifiers keep the search linear.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def _check_depth(text: str, what: str) -> None:
    """Check the depth: whatever walks the values later is recursive, like the parser."""
    brackets = re.findall(r"[\[\]{}]", _STRING.sub("", text))
    depths = accumulate(1 if bracket in "[{" else -1 for bracket in brackets)
    if max(depths, default=0) > LIMITS.json_depth:
        raise FormatError(
            f"{what} nests deeper than the {LIMITS.json_depth} levels allowed; "
            "check that it is the right file"
        )


def parse_json(data: bytes, *, what: str, max_bytes: int = LIMITS.json_bytes) -> dict[str, Any]:
    """Parse a JSON object strictly, within bounded time and memory.

    Args:
        data: UTF-8, a byte order mark in front is dropped.
        what: the file as it should appear in messages.
        max_bytes: the largest size allowed.

    Raises:
        FormatError: too large or deep; duplicate keys; NaN or infinite numbers; integers
            beyond 2**53; not an object; not UTF-8; not JSON.
    """
    what = shown(what, 140)
    if len(data) > max_bytes:
        raise FormatError(
            f"{what} has {len(data)} bytes, allowed are {max_bytes}; "
            "check that it is the right file"
        )

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        # json keeps the last of two equal keys in silence; other readers may keep the first.
        result = dict(items)
        if len(result) != len(items):
            twice = next(key for key, count in Counter(k for k, _ in items).items() if count > 1)
            raise FormatError(f"{what} has the key '{shown(twice, 40)}' twice; remove one")
        return result

    def integer(digits: str) -> int:
        # The length comes first: int() of a million digits takes quadratic time.
        if len(digits) > 20 or abs(int(digits)) > LIMITS.json_int:
            raise FormatError(
                f"{what} holds the integer {shown(digits, 24)}, allowed are up to 2**53; correct it"
            )
        return int(digits)

    def real(digits: str) -> float:
        # Also NaN and Infinity, which `json` would accept.
        value = float(digits)
        if not math.isfinite(value):
            raise FormatError(f"{what} holds {shown(digits, 24)}; use a finite number")
        return value

    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
        _check_depth(text, what)
        value = json.loads(
            text,
            object_pairs_hook=pairs,
            parse_int=integer,
            parse_float=real,
            parse_constant=real,
        )
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{what} is not UTF-8 at byte {error.start}; restore or download it again"
        ) from None
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"{what} is not valid JSON: {shown(error, 80)}; restore or download it again"
        ) from None
    if not isinstance(value, dict):
        raise FormatError(
            f"{what} holds a JSON {type(value).__name__}, expected an object {{…}}; "
            "check that it is the right file"
        )
    return value


def read_json(
    path: Path, *, max_bytes: int = LIMITS.json_bytes, follow: bool = True
) -> dict[str, Any]:
    """Read and parse a JSON file by the rules of `parse_json`."""
    with open_checked(path, what="JSON file", follow=follow) as stream:
        data = stream.read(max_bytes + 1)
    return parse_json(data, what=f"'{shown(path, 120)}'", max_bytes=max_bytes)


def json_digest(data: Any) -> str:
    """Return the SHA-256 of values, as lower-case hex; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


# Dataclasses --------------------------------------------------------------------------------------

_T = TypeVar("_T")
_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "object": "an object",
    "array": "a list",
}
# It evaluates strings, and manifests have many rows.
_type_hints = functools.cache(functools.partial(get_type_hints, include_extras=True))


def from_json(
    kind: type[_T],
    data: object,
    *,
    what: str,
    key: str = "",
    error: type[ElmoreError] = ConfigError,
    fix: str = "add it",
    extra: bool = False,
) -> _T:
    """Build a value of a type from parsed JSON or TOML, and check it.

    Args:
        kind: a dataclass, whose fields are keys; or a type that such a field may have: whatever
            msgspec can convert. Bounds are stated as `Annotated[int, Meta(ge=1)]`.
        data: the parsed value.
        what: the file as it should appear in messages.
        key: where the value is in the file, for messages.
        error: what to raise.
        fix: what to do about a key that is missing, for messages.
        extra: ignore keys of the outermost object that no field has.

    Raises:
        ElmoreError: of the type `error`: a key that is unknown or missing, or a value of the wrong
            type or out of bounds. The message says which key.
    """
    try:
        _check_names(kind, data, key, extra)
        return msgspec.convert(data, kind)
    except ConfigError as problem:
        raise error(f"{what}: {problem}") from None
    except msgspec.ValidationError as problem:
        if isinstance(problem.__cause__, ConfigError):  # of a __post_init__
            raise error(f"{what}: {problem.__cause__}") from None
        raise error(f"{what}: {_explained(problem, data, key, fix)}") from None


def _check_names(kind: Any, value: Any, key: str, extra: bool = False) -> None:
    """Refuse unknown keys, and unknown words where there is a choice.

    msgspec ignores the former, and does not list the choices of the latter.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        _check_names(inner[0], value, key)
    elif origin in (Union, UnionType) and value is not None:
        _check_names(next(k for k in inner if k is not type(None)), value, key)
    elif origin is Literal and value not in inner:
        allowed = ", ".join(map(repr, inner))
        raise ConfigError(f"{key}={shown(repr(value), 60)} is unknown; use one of {allowed}")
    elif origin is tuple and isinstance(value, list | tuple):
        kinds = inner[:1] * len(value) if inner[-1] is ... else inner
        for n, (k, item) in enumerate(zip(kinds, value, strict=False)):
            _check_names(k, item, f"{key}[{n}]")
    elif origin is dict and isinstance(value, Mapping):
        for name, item in value.items():
            _check_names(inner[1], item, f"{key}.{name}")
    elif dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        hints: dict[str, Any] = _type_hints(kind)  # type: ignore[arg-type] # a class is hashable
        for name, item in value.items():
            if name in hints:
                _check_names(hints[name], item, f"{key}.{name}".lstrip("."))
            elif not extra:
                near = difflib.get_close_matches(name, hints, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(hints)}"
                where = f"{key} has an" if key else "an"
                raise ConfigError(f"{where} unknown key '{shown(name, 60)}'; {hint}")


def _explained(problem: msgspec.ValidationError, data: Any, key: str, fix: str) -> str:
    """Say what msgspec found, with the key and the value."""
    text, _, path = str(problem).partition(" - at `$")
    steps = re.findall(r"[^.\[\]`]+|\.\.\.", path)
    place = f"{key}{path.rstrip('`')}".lstrip(".")
    if text.startswith("Object missing"):
        name = text.split("`")[1]
        return f"{place}.{name} is missing; {fix}".lstrip(".")
    try:
        for step in steps:
            data = data[int(step) if isinstance(data, list | tuple) else step]
        found = f"={shown(repr(data), 60)}"
    except (KeyError, TypeError, ValueError):  # a key of a dict, which msgspec does not name
        found = ""
    if data is None:
        return f"{place} is missing; {fix}"
    wanted = re.sub(r"`([^`]*)`", lambda match: _in_words(match[1]), text.partition(", got `")[0])
    return f"{shown(place, 60)}{found}; {wanted.replace('Expected', 'use')}"


def _in_words(kinds: str) -> str:
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds.split(" | "))

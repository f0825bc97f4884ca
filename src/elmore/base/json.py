"""Strict JSON, and dataclasses from the values of JSON and TOML.

Parsing is bounded in time and memory, and accepts no value that another reader would see otherwise.
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
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import (
    Any,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from elmore.base.io import open_checked
from elmore.base.messages import shown
from elmore.errors import ConfigError, ElmoreError, FormatError
from elmore.limits import LIMITS, Limits

__all__ = ["from_json", "json_digest", "parse_json", "read_json"]

# A string, or one character of structure. The lone quote comes last: it matches only where a
# string does not end, and so keeps the scan linear.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{},]', re.DOTALL)


def _scan(text: str, what: str, limits: Limits) -> None:
    """Check depth and node count before the recursive parser sees the text."""
    depth = 0
    nodes = 1
    for match in _TOKEN.finditer(text):
        mark = match[0]
        if mark in "[{":
            depth += 1
            nodes += 1
            if depth > limits.json_depth:
                raise FormatError(
                    f"{what} nests deeper than the {limits.json_depth} levels allowed; "
                    "check that it is the right file"
                )
        elif mark in "]}":
            depth -= 1
        elif mark == ",":
            nodes += 1
        elif mark == '"':
            raise FormatError(
                f"{what} is not valid JSON: the string at character {match.start()} does not end; "
                "restore or download it again"
            )
        if nodes > limits.json_nodes:
            raise FormatError(
                f"{what} holds more than the {limits.json_nodes} values allowed; "
                "check that it is the right file"
            )


@dataclass(frozen=True)
class _CheckedValues:
    """What becomes of the values that `json` finds: each is checked first."""

    what: str
    limits: Limits

    def pairs(self, items: list[tuple[str, Any]]) -> dict[str, Any]:
        # json keeps the last of two equal keys in silence; other readers may keep the first.
        result = dict(items)
        if len(result) != len(items):
            seen: set[str] = set()
            twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value] # add() returns None, which is the point
            raise FormatError(f"{self.what} has the key '{shown(twice, 40)}' twice; remove one")
        return result

    def integer(self, digits: str) -> int:
        # The length comes first: int() of a million digits takes quadratic time.
        if len(digits) > 20 or abs(int(digits)) > self.limits.json_int:
            raise FormatError(
                f"{self.what} holds the integer {shown(digits, 24)}, allowed are up to 2**53; "
                "correct it"
            )
        return int(digits)

    def real(self, digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            raise FormatError(
                f"{self.what} holds {shown(digits, 24)}, beyond any float; correct the number"
            )
        return value

    def constant(self, name: str) -> NoReturn:
        raise FormatError(
            f"{self.what} holds {name}, which JSON does not allow; use a finite number"
        )


def parse_json(data: bytes, *, what: str, limits: Limits = LIMITS) -> dict[str, Any]:
    """Parse a JSON object strictly, within bounded time and memory.

    Args:
        data: UTF-8, a byte order mark in front is dropped.
        what: the file as it should appear in messages.
        limits: sizes allowed.

    Raises:
        FormatError: too large, deep or long; duplicate keys; NaN or infinite numbers; integers
            beyond 2**53; not an object; not UTF-8; not JSON.
    """
    what = shown(what, 140)
    if len(data) > limits.json_bytes:
        raise FormatError(
            f"{what} has {len(data)} bytes, allowed are {limits.json_bytes}; "
            "check that it is the right file"
        )

    values = _CheckedValues(what, limits)
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
        _scan(text, what, limits)
        value = json.loads(
            text,
            object_pairs_hook=values.pairs,
            parse_int=values.integer,
            parse_float=values.real,
            parse_constant=values.constant,
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


def read_json(path: Path, limits: Limits = LIMITS, *, follow: bool = True) -> dict[str, Any]:
    """Read and parse a JSON file by the rules of `parse_json`."""
    with open_checked(path, what="JSON file", follow=follow) as stream:
        data = stream.read(limits.json_bytes + 1)
    return parse_json(data, what=f"'{shown(path, 120)}'", limits=limits)


def json_digest(data: Any) -> str:
    """Return the SHA-256 of values, as lower-case hex; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


# Dataclasses --------------------------------------------------------------------------------------

_T = TypeVar("_T")
_PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
_type_hints = functools.cache(get_type_hints)  # it evaluates strings, and manifests have many rows


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

    A key may be missing if its field has a default or may be None.

    Args:
        kind: a dataclass or NamedTuple, whose fields are keys; or a type that such a field may
            have: bool, int, float, str, a Literal, `X | None`, a tuple, dict[str, X], Any.
        data: the parsed value.
        what: the file as it should appear in messages.
        key: where the value is in the file, for messages.
        error: what to raise.
        fix: what to do about a key that is missing, for messages.
        extra: ignore keys of the outermost object that no field has.
    """
    return cast(_T, _FromJson(what, error, fix, extra).value(kind, data, key))


@dataclass(frozen=True)
class _FromJson:
    """The arguments of `from_json` that stay the same at every depth."""

    what: str
    error: type[ElmoreError]
    fix: str
    extra: bool

    def value(self, kind: Any, value: Any, key: str) -> Any:
        origin, inner = get_origin(kind), get_args(kind)
        if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
            return self.fields(kind, value, key)
        if origin in (Union, UnionType):
            # TOML has no null, so a file says "none".
            if value in (None, "none"):
                return None
            return self.value(next(k for k in inner if k is not type(None)), value, key)
        if origin is Literal:
            if value not in inner:
                self.refuse(key, value, f"is unknown; use one of {', '.join(map(repr, inner))}")
            return value
        if origin is tuple:
            return self.items(inner, value, key)
        if origin is dict:
            if not isinstance(value, dict):
                self.refuse(key, value, "must be an object; correct it")
            return {name: self.value(inner[1], v, f"{key}.{name}") for name, v in value.items()}
        return value if kind is Any else self.plain(kind, value, key)

    def fields(self, kind: Any, data: Any, key: str) -> Any:
        place = f"{self.what}: {key}" if key else self.what
        if not isinstance(data, dict):
            problem = (
                " is missing" if data is None else f"={shown(repr(data), 40)} is not an object"
            )
            raise self.error(f"{place}{problem}; {self.fix}")
        hints, defaults = _type_hints(kind), _defaults(kind)
        for name in data:
            if name not in hints and (key or not self.extra):
                near = difflib.get_close_matches(name, hints, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(hints)}"
                raise self.error(f"{place} has an unknown key '{shown(name, 60)}'; {hint}")
        values = {}
        for name, hint in hints.items():
            inside = f"{key}.{name}" if key else name
            if name in data:
                values[name] = self.value(hint, data[name], inside)
            elif name not in defaults and type(None) in get_args(hint):
                values[name] = None
            elif name not in defaults:
                raise self.error(f"{self.what}: {inside} is missing; {self.fix}")
        try:
            return kind(**values)
        except ConfigError as error:
            raise self.error(f"{self.what}: {error}") from None

    def items(self, kinds: tuple[Any, ...], value: Any, key: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            self.refuse(key, value, "must be a list; correct it")
        if kinds[-1] is ...:
            kinds = (kinds[0],) * len(value)
        if len(value) != len(kinds):
            self.refuse(key, value, f"must be a list of {len(kinds)} values; correct it")
        pairs = zip(kinds, value, strict=True)
        return tuple(self.value(k, v, f"{key}[{n}]") for n, (k, v) in enumerate(pairs))

    def plain(self, kind: Any, value: Any, key: str) -> Any:
        if kind is float and type(value) is int:
            return float(value)
        # Not isinstance: bool is an int in Python.
        if type(value) is not kind:
            self.refuse(key, value, f"must be {_PLAIN[kind]}; correct it")
        return value

    def refuse(self, key: str, value: Any, problem: str) -> NoReturn:
        raise self.error(f"{self.what}: {shown(key, 60)}={shown(repr(value), 60)} {problem}")


@functools.cache
def _defaults(kind: Any) -> frozenset[str]:
    """The fields that have a default."""
    if not dataclasses.is_dataclass(kind):
        return frozenset(kind._field_defaults)
    none = (dataclasses.MISSING, dataclasses.MISSING)
    fields = dataclasses.fields(kind)
    return frozenset(f.name for f in fields if (f.default, f.default_factory) != none)

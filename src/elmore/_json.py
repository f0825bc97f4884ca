"""Strict JSON: bounded in time and memory, and no value that another reader would see otherwise."""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from elmore._io import open_checked
from elmore._messages import shown
from elmore.errors import FormatError
from elmore.limits import LIMITS, Limits

__all__ = ["json_digest", "parse_json", "read_json"]

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
class _Values:
    """What becomes of the values that `json` finds: each is checked first."""

    what: str
    limits: Limits

    def pairs(self, items: list[tuple[str, Any]]) -> dict[str, Any]:
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

    values = _Values(what, limits)
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

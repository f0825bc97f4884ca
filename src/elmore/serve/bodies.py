"""Bodies as strict JSON: no duplicate keys, no NaN, no lone surrogates."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request

from elmore._messages import shown
from elmore.serve.errors import ServiceError

__all__ = ["JsonRequest", "parse_body"]


class JsonRequest(Request):
    """A request whose JSON is read strictly."""

    async def json(self) -> Any:
        """Parse the body."""
        return parse_body(await self.body())


def parse_body(body: bytes) -> Any:
    """Parse the body of a request.

    Lone surrogates are dropped, as the original programs drop them when they encode a word.

    Raises:
        ServiceError: it is no JSON.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ServiceError(400, f"the body is not UTF-8 (byte {error.start}); encode it") from None
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ServiceError(
            400, f"the body is not JSON: {error.msg} (character {error.pos}); correct it"
        ) from None
    except RecursionError:
        raise ServiceError(400, "the body is nested too deeply; send plain lists") from None
    except ValueError:  # Python converts numbers of up to 4,300 digits
        raise ServiceError(400, "the body holds a number that is too long; shorten it") from None
    # Only an escape can bring one: UTF-8 has none.
    return _cleaned(value) if "\\u" in text else value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = _first_repeated(name for name, _ in pairs)
        raise ServiceError(
            400, f"the body names '{shown(_cleaned(twice), 60)}' twice; name it once"
        )
    return result


def _first_repeated(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _refuse(name: str) -> Any:
    raise ServiceError(400, f"the body holds {name}, which is not JSON; send finite numbers")


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "ignore").decode("utf-8")
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {_cleaned(name): _cleaned(item) for name, item in value.items()}
    return value

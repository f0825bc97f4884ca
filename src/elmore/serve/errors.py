"""One shape for everything that goes wrong.

    {"error": {"type": "...", "message": "what is wrong; what to do", "param": "sentences.0"}}

It is the shape of the OpenAI API too, so that its clients show the message. Nothing of the inside
is ever in it: no path, no name of a file, class or function.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import HTTPException
from starlette.responses import Response

from elmore._messages import shown

__all__ = ["ServiceError", "error_response", "from_status", "from_validation"]

_TYPES = {
    400: ("invalid_request", "the request cannot be read; see /openapi.json"),
    401: ("unauthorized", "the bearer token is missing or wrong; send Authorization: Bearer TOKEN"),
    404: ("not_found", "there is nothing here; see /openapi.json for what there is"),
    405: ("method_not_allowed", "this address knows another method; see /openapi.json"),
    406: ("not_acceptable", "none of the accepted types can be made; see /openapi.json"),
    408: ("timeout", "the body did not arrive in time; send it again"),
    413: ("too_large", "the request is too large; send less at a time"),
    415: ("unsupported_media_type", "send Content-Type: application/json"),
    422: ("invalid_request", "the request does not fit; see /openapi.json"),
    429: ("overloaded", "too much is waiting; try again later"),
    500: ("internal", "this failed inside the service; the operator's log says more"),
    503: ("unavailable", "not ready for requests now; try again later"),
}


class ServiceError(HTTPException):
    """An answer that is an error.

    Args:
        status: the HTTP status.
        message: what is wrong; what to do.
        param: the field that is wrong.
        retry_after: seconds after which another try is worth it.
    """

    def __init__(
        self,
        status: int,
        message: str | None = None,
        *,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.kind, default = _TYPES[status]
        self.message = default if message is None else message
        self.param = param
        headers = {} if status != 401 else {"WWW-Authenticate": "Bearer"}
        if retry_after is not None:
            headers["Retry-After"] = str(max(1, math.ceil(retry_after)))
        super().__init__(status, self.message, headers)


def error_response(error: ServiceError, *, close: bool = False) -> Response:
    """Make the answer; `close`: the connection cannot be used again."""
    body = {"error": {"type": error.kind, "message": error.message, "param": error.param}}
    headers: Mapping[str, str] = error.headers or {}
    extra = {"Connection": "close"} if close else {}
    return Response(
        json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"),
        error.status_code,
        {**headers, **extra},
        "application/json",
    )


def from_status(status: int) -> ServiceError:
    """Make the error of a status that the framework came to; its words are not passed on."""
    return ServiceError(status if status in _TYPES else 400 if status < 500 else 500)


def from_validation(errors: Sequence[Mapping[str, Any]]) -> ServiceError:
    """Say in one line where a request does not fit its schema."""
    if not errors:
        return ServiceError(422)
    # The deepest place is the nearest to what is wrong, where several kinds were possible.
    error = max(errors, key=lambda error: len(error.get("loc", ())))
    places = [str(part) for part in error.get("loc", ()) if part != "body"]
    # Names of schemas stand among the places where several kinds are possible.
    places = [part for part in places if part.isdigit() or part.isidentifier()]
    where = ".".join(places[:6])
    message = shown(str(error.get("msg", "does not fit")).removeprefix("Value error, "), 300)
    if not where:
        return ServiceError(422, f"the body does not fit: {message}; see /openapi.json")
    return ServiceError(
        422, f"{shown(where, 100)}: {message}; see /openapi.json", param=shown(where, 100)
    )

"""The one format of errors.

    {"error": {"type": "...", "message": "what is wrong; what to do", "param": "sentences.0"}}

It is also the format of OpenAI's API, so its clients show the message. Errors never expose
internals: no path, and no name of a file, class or function.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import HTTPException
from starlette.responses import Response

from elmore.base.messages import shown

__all__ = ["ServiceError", "error_response", "from_status", "from_validation"]

_TYPES = {
    400: ("invalid_request", "the request cannot be read; see /openapi.json"),
    401: ("unauthorized", "the bearer token is missing or wrong; send Authorization: Bearer TOKEN"),
    404: ("not_found", "this path does not exist; see /openapi.json for those that do"),
    405: ("method_not_allowed", "this path needs another method; see /openapi.json"),
    406: ("not_acceptable", "none of the accepted types is available; see /openapi.json"),
    408: ("timeout", "the body did not arrive in time; send it again"),
    413: ("too_large", "the request is too large; send less at a time"),
    415: ("unsupported_media_type", "send Content-Type: application/json"),
    422: ("invalid_request", "the request does not fit the schema; see /openapi.json"),
    429: ("overloaded", "too many requests are waiting; try again later"),
    499: ("client_closed", "the client closed the connection"),  # nobody reads it but the metrics
    500: ("internal", "the service failed; its log says more"),
    503: ("unavailable", "the service is not ready; try again later"),
}


class ServiceError(HTTPException):
    """An error response: what is wrong and what to do, and in which field (`param`).

    `retry_after` is the number of seconds after which another attempt makes sense.
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
    """The response; with `close` the connection cannot be used again."""
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
    """The error for a status that the framework chose; its own message is not passed on."""
    return ServiceError(status if status in _TYPES else 400 if status < 500 else 500)


def from_validation(errors: Sequence[Mapping[str, Any]]) -> ServiceError:
    """One line that says where a request does not fit its schema."""
    if not errors:
        return ServiceError(422)
    # Where a field has several possible types, the deepest error is the closest to the cause.
    error = max(errors, key=lambda error: len(error.get("loc", ())))
    places = [str(part) for part in error.get("loc", ()) if part != "body"]
    # The location then also has names of types, such as list[str]; they are left out.
    places = [part for part in places if part.isdigit() or part.isidentifier()]
    where = ".".join(places[:6])
    message = shown(str(error.get("msg", "does not fit")).removeprefix("Value error, "), 300)
    if not where:
        return ServiceError(422, f"the body does not fit: {message}; see /openapi.json")
    return ServiceError(
        422, f"{shown(where, 100)}: {message}; see /openapi.json", param=shown(where, 100)
    )

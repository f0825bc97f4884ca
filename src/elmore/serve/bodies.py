"""Bodies of responses and errors: JSON or npz.

npz has arrays "0", "1", ... for the sentences, or "vectors" if pooled, like the files of
`elmore embed --format npz`. Every error is

    {"error": {"type": "...", "message": "what is wrong; what to do", "param": "sentences.0"}}

which is also the format of OpenAI's API, so its clients show the message. Errors never expose
internals: no path, and no name of a file, class or function.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.responses import Response

from elmore.base.messages import shown
from elmore.embedding.vector_files import json_numbers

if TYPE_CHECKING:
    from elmore.text.tokenizer import Sentence

JSON = "application/json"
NPZ = "application/x-npz"
# Bytes of a response that are encoded and sent at once.
_PIECE_BYTES = 131_072
# A sentence and its array: (time, dim), or (layers, time, dim); without time if pooled.
Embedded = tuple["Sentence", NDArray[np.float32]]


# --------------------------------------------------------------------------- errors

ERRORS = {
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
        self.kind, default = ERRORS[status]
        self.message = default if message is None else message
        self.param = param
        headers = {} if status != 401 else {"WWW-Authenticate": "Bearer"}
        if retry_after is not None:
            headers["Retry-After"] = str(max(1, math.ceil(retry_after)))
        super().__init__(status, self.message, headers)


def error_response(error: ServiceError) -> Response:
    """The response to an error."""
    body = {"error": {"type": error.kind, "message": error.message, "param": error.param}}
    return Response(encode_json(body), error.status_code, error.headers, JSON)


async def on_error(_: Request, error: Exception) -> Response:
    """The response to an error of ours or of FastAPI, whose own messages are not passed on."""
    if isinstance(error, ServiceError):
        return error_response(error)
    if isinstance(error, RequestValidationError):
        return error_response(_from_validation(error.errors()))
    if not isinstance(error, HTTPException):
        return error_response(ServiceError(500))  # the guard logs the cause
    status = error.status_code
    found = ServiceError(status if status in ERRORS else 400 if status < 500 else 500)
    found.headers = error.headers  # of 405: which methods there are
    return error_response(found)


def _from_validation(errors: Sequence[Mapping[str, Any]]) -> ServiceError:
    """One line that says where a request does not fit its schema."""
    # Where a field has several possible types, the deepest error is the closest to the cause.
    error = max(errors, key=lambda error: len(error.get("loc", ())))
    if error["type"] == "json_invalid":
        reason, place = error["ctx"]["error"], error["loc"][-1]
        return ServiceError(400, f"the body is not JSON: {reason} (character {place}); correct it")
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


# --------------------------------------------------------------------------- responses


def choose_type(accept: str | None) -> str:
    """The media type of a response: npz if the Accept header names it, else JSON."""
    kinds = {part.partition(";")[0].strip().lower() for part in (accept or JSON).split(",")}
    if NPZ in kinds:
        return NPZ
    if kinds & {JSON, "application/*", "*/*"}:
        return JSON
    raise ServiceError(406, f"accept {JSON} or {NPZ}")


def encode_vectors(
    kind: str, head: dict[str, Any], results: deque[Embedded], pooled: bool
) -> Iterator[bytes]:
    """Encode sentences in a media type, in pieces that are small enough to be sent at once.

    `head` has the JSON fields before the sentences. A result is removed from `results` when it is
    encoded.
    """
    if kind != JSON:
        yield from _npz(results, pooled, int(head["dim"]))
        return
    held = bytearray()
    for part in _sentences(head, results, pooled):
        held += part
        if len(held) >= _PIECE_BYTES:
            yield bytes(held)
            held.clear()
    yield bytes(held)


def encode_json(value: Any) -> bytes:
    """Compact JSON in UTF-8."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    # UTF-8 cannot hold lone surrogates; with a backslash they are escapes of JSON too.
    return text.encode("utf-8", "backslashreplace")


def json_response(value: Any) -> Response:
    """A response of JSON."""
    return Response(encode_json(value), media_type=JSON)


def _sentences(head: dict[str, Any], results: deque[Embedded], pooled: bool) -> Iterator[bytes]:
    yield encode_json(head)[:-1] + b',"results":['
    row = "[" + ",".join(["%.7g"] * head["dim"]) + "]"
    comma = b""
    while results:
        sentence, values = results.popleft()
        fields: dict[str, Any] = {"tokens": sentence.tokens}
        if sentence.spans is not None:
            fields["spans"] = sentence.spans
        all_layers = values.ndim == (2 if pooled else 3)
        key = "layers" if all_layers else "vector" if pooled else "vectors"
        yield comma + encode_json(fields)[:-1] + f',"{key}":'.encode()
        yield from json_numbers(values, row, b",")
        yield b"}"
        comma = b","
    yield b"]}"


def _npz(results: deque[Embedded], pooled: bool, dim: int) -> Iterator[bytes]:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:  # not compressed: numbers hardly shrink

        def add(name: str, values: NDArray[np.float32]) -> None:
            # With the fixed date of a ZipInfo: the same request has the same bytes.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)

        if pooled:
            rows = [values for _, values in results]
            results.clear()
            add("vectors", np.stack(rows) if rows else np.zeros((0, dim), np.float32))
        for k in range(len(results)):
            add(str(k), results.popleft()[1])
    view = sink.getbuffer()
    for k in range(0, len(view), _PIECE_BYTES):
        yield bytes(view[k : k + _PIECE_BYTES])

"""Bodies of requests, responses and errors: strict JSON in; JSON or npz out.

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
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.responses import Response

from elmore.base.messages import shown

if TYPE_CHECKING:
    from elmore.text.tokenizer import Sentence

__all__ = [
    "ERRORS",
    "JSON",
    "NPZ",
    "Embedded",
    "JsonRoute",
    "ServiceError",
    "choose_type",
    "encode_json",
    "encode_vectors",
    "error_response",
    "json_response",
    "number",
    "on_error",
    "parse_body",
]

JSON = "application/json"
NPZ = "application/x-npz"
# Bytes of a response that are encoded and sent at once.
_PIECE_BYTES = 131_072
# Numbers that become text at once.
_BLOCK_NUMBERS = 8192


class Embedded(NamedTuple):
    """A sentence and its array: (time, dim), or (layers, time, dim); without time if pooled."""

    sentence: Sentence
    values: NDArray[np.float32]


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


def error_response(error: ServiceError, *, close: bool = False) -> Response:
    """The response; with `close` the connection cannot be used again."""
    body = {"error": {"type": error.kind, "message": error.message, "param": error.param}}
    headers = {**(error.headers or {}), **({"Connection": "close"} if close else {})}
    content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return Response(content, error.status_code, headers, JSON)


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


# --------------------------------------------------------------------------- requests


class JsonRoute(APIRoute):
    """Reads bodies as strict JSON: no duplicate keys, no NaN."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of FastAPI, with another `Request.json`."""
        handle = super().get_route_handler()

        class JsonRequest(Request):
            async def json(self) -> Any:
                return parse_body(await self.body())

        async def strict(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return strict


def parse_body(body: bytes) -> Any:
    """Parse the body of a request.

    Lone surrogates, which escapes can spell, are passed on: tokens and spans are then those that
    the library gives for the same string.

    Raises:
        ServiceError: it is not JSON.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ServiceError(400, f"the body is not UTF-8 (byte {error.start}); encode it") from None
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ServiceError(
            400, f"the body is not JSON: {error.msg} (character {error.pos}); correct it"
        ) from None
    except RecursionError:
        raise ServiceError(400, "the body is nested too deeply; send plain lists") from None
    except ValueError:  # Python converts numbers of up to 4,300 digits
        raise ServiceError(400, "the body holds a number that is too long; shorten it") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ServiceError(400, f"the body has '{shown(name, 60)}' twice; send it once")
        result[name] = value
    return result


def _refuse(name: str) -> Any:
    raise ServiceError(400, f"the body holds {name}, which is not JSON; send finite numbers")


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
    if kind == JSON:
        return _encoded(_sentences(head, results, pooled))
    return _npz(results, pooled, int(head["dim"]))


def encode_json(value: Any) -> bytes:
    """Compact JSON; escapes what UTF-8 cannot hold, which are lone surrogates."""
    write = partial(json.dumps, value, separators=(",", ":"), allow_nan=False)
    try:
        return write(ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return write().encode("ascii")


def json_response(value: Any) -> Response:
    """A response of JSON."""
    return Response(encode_json(value), media_type=JSON)


def number(value: float | None) -> float | None:
    """Round for JSON, which has no infinity."""
    return None if value is None or not np.isfinite(value) else round(value, 6)


def _sentences(head: dict[str, Any], results: deque[Embedded], pooled: bool) -> Iterator[str]:
    yield encode_json(head)[:-1].decode("utf-8") + ',"results":['
    comma = ""
    while results:
        sentence, values = results.popleft()
        fields: dict[str, Any] = {"tokens": sentence.tokens}
        if sentence.spans is not None:
            fields["spans"] = sentence.spans
        all_layers = values.ndim == (2 if pooled else 3)
        key = "layers" if all_layers else "vector" if pooled else "vectors"
        yield f'{comma}{encode_json(fields)[:-1].decode("utf-8")},"{key}":'
        yield from _numbers(values)
        yield "}"
        comma = ","
    yield "]}"


def _numbers(values: NDArray[np.float32]) -> Iterator[str]:
    """An array as nested JSON lists, with seven digits."""
    if values.ndim > 2:
        for k, part in enumerate(values):
            yield "," if k else "["
            yield from _numbers(part)
    else:
        matrix = values.reshape(-1, values.shape[-1])
        row = "[" + ",".join(["%.7g"] * matrix.shape[1]) + "]"
        rows = max(1, _BLOCK_NUMBERS // max(1, matrix.shape[1]))
        yield "[" if values.ndim == 2 else ""
        for k in range(0, len(matrix), rows):
            # One % for many numbers is several times as fast as json.dumps of them.
            block = matrix[k : k + rows]
            text = ",".join([row] * len(block)) % tuple(block.ravel().tolist())
            yield f",{text}" if k else text
    yield "]" if values.ndim > 1 else ""


def _encoded(parts: Iterable[str]) -> Iterator[bytes]:
    held: list[str] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= _PIECE_BYTES:
            yield "".join(held).encode("utf-8")
            held, size = [], 0
    yield "".join(held).encode("utf-8")


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
        count = 0
        while results:
            add(str(count), results.popleft().values)
            count += 1
    view = sink.getbuffer()
    for k in range(0, len(view), _PIECE_BYTES):
        yield bytes(view[k : k + _PIECE_BYTES])

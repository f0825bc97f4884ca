"""Bodies of requests and responses: strict JSON in; JSON or npz out.

npz has arrays "0", "1", ... for the sentences, or "vectors" if pooled, like the files of
`elmore embed --format npz`.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request

from elmore.base.messages import shown
from elmore.serve.errors import ServiceError

if TYPE_CHECKING:
    from elmore.text.sentence import Sentence

__all__ = [
    "JSON",
    "NPZ",
    "Embedded",
    "JsonRequest",
    "choose_type",
    "encode_json",
    "encode_vectors",
    "number",
    "parse_body",
]

JSON = "application/json"
NPZ = "application/x-npz"
_TYPES = (JSON, NPZ)
# Bytes of a response that are encoded and sent at once.
_PIECE_BYTES = 131_072
# Numbers that become text at once.
_BLOCK_NUMBERS = 8192


class Embedded(NamedTuple):
    """A sentence and its array: (time, dim), or (layers, time, dim); without time if pooled."""

    sentence: Sentence
    values: NDArray[np.float32]


# --------------------------------------------------------------------------- requests


class JsonRequest(Request):
    """A request whose body is strict JSON: no duplicate keys, no NaN."""

    async def json(self) -> Any:
        """Parse the body."""
        return parse_body(await self.body())


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
    """The media type of a response to an Accept header; JSON by default."""
    if not accept:
        return JSON
    best, best_quality = "", 0.0
    for part in accept.split(","):
        kind, *parameters = (item.strip().lower() for item in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        found = JSON if kind in ("*/*", "application/*") else kind
        if found in _TYPES and quality > best_quality:
            best, best_quality = found, quality
    if not best:
        raise ServiceError(406, f"accept one of {', '.join(_TYPES)}")
    return best


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

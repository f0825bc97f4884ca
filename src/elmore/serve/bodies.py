"""Bodies of requests and responses: strict JSON in; JSON, npz or an Arrow stream out.

npz has arrays "0", "1", ... for the sentences, or "vectors" if pooled, like the files of
`elmore embed --format npz`. The Arrow stream has the columns of its parquet files.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request

from elmore.base.messages import shown
from elmore.base.optional import require
from elmore.embedding.vector_files import Record, Settings, utf8
from elmore.embedding.vector_files.npz import NpzWriter
from elmore.embedding.vector_files.parquet import VectorColumns
from elmore.errors import MissingExtra
from elmore.serve.errors import ServiceError

__all__ = [
    "ARROW",
    "JSON",
    "NPZ",
    "PIECE_BYTES",
    "JsonRequest",
    "choose_type",
    "encode_json",
    "encode_vectors",
    "number",
    "parse_body",
]

JSON = "application/json"
NPZ = "application/x-npz"
ARROW = "application/vnd.apache.arrow.stream"
_TYPES = (JSON, NPZ, ARROW)
PIECE_BYTES = 131_072
# Numbers that become text at once, and that a batch of an Arrow stream has at least.
_BLOCK_NUMBERS = 8192
_BATCH_NUMBERS = 262_144


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
    if best == ARROW:
        try:
            require("pyarrow", "parquet", "an Arrow stream")
        except MissingExtra:
            raise ServiceError(
                406, f"this service cannot send Arrow streams; accept {JSON} or {NPZ}"
            ) from None
    return best


def encode_vectors(
    kind: str, head: dict[str, Any], records: deque[Record], pooled: bool
) -> Iterator[bytes]:
    """Encode sentences in a media type, in pieces of about `PIECE_BYTES`.

    `head` has the JSON fields before the sentences. A record is encoded when its piece is asked
    for, and removed from `records`.
    """
    if kind == JSON:
        return _encoded(_sentences(head, records, pooled))
    encode = _npz if kind == NPZ else _arrow
    return _cut(encode(records, pooled, int(head["dim"])))


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


def _sentences(head: dict[str, Any], records: deque[Record], pooled: bool) -> Iterator[str]:
    yield encode_json(head)[:-1].decode("utf-8") + ',"results":['
    comma = ""
    while records:
        record = records.popleft()
        fields: dict[str, Any] = {"tokens": record.tokens}
        if record.spans is not None:
            fields["spans"] = record.spans
        all_layers = record.values.ndim == (2 if pooled else 3)
        key = "layers" if all_layers else "vector" if pooled else "vectors"
        yield f'{comma}{encode_json(fields)[:-1].decode("utf-8")},"{key}":'
        yield from _numbers(record.values)
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
        if size >= PIECE_BYTES:
            yield "".join(held).encode("utf-8")
            held, size = [], 0
    yield "".join(held).encode("utf-8")


def _cut(parts: Iterable[bytes]) -> Iterator[bytes]:
    for part in parts:
        for k in range(0, len(part), PIECE_BYTES):
            yield part[k : k + PIECE_BYTES]


class _Sink(io.BytesIO):
    """A file whose bytes are taken away as it grows; positions count from its first byte."""

    _taken = 0

    def take(self) -> bytes:
        """What was written since the last call."""
        data = self.getvalue()
        super().seek(0)
        self.truncate()
        self._taken += len(data)
        return data

    def tell(self) -> int:
        """The position."""
        return self._taken + super().tell()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move within what was not taken yet; a zip returns to the head of its last member."""
        place = offset - self._taken if whence == 0 else offset
        return self._taken + super().seek(place, whence)


def _settings(records: deque[Record], pooled: bool, dim: int) -> Settings:
    values = records[0].values if records else np.zeros((dim,) if pooled else (0, dim), np.float32)
    shape: tuple[int | None, ...] = values.shape
    return Settings(shape=shape if pooled else (*shape[:-2], None, shape[-1]))


def _npz(records: deque[Record], pooled: bool, dim: int) -> Iterator[bytes]:
    sink = _Sink()
    with tempfile.SpooledTemporaryFile(max_size=64 << 20) as spool:
        writer = NpzWriter(sink, spool, _settings(records, pooled, dim))  # type: ignore[arg-type]  # it is a BinaryIO
        while records:
            writer.write(records.popleft())
            yield sink.take()
        writer.close()
    yield sink.take()


def _arrow(records: deque[Record], pooled: bool, dim: int) -> Iterator[bytes]:
    arrow = require("pyarrow", "parquet", "an Arrow stream")
    settings = _settings(records, pooled, dim)
    columns = VectorColumns(dim=int(settings.shape[-1] or 0), pooled=pooled)
    n_layers = int(settings.shape[0] or 0) if settings.all_layers else 0
    names = [f"layer_{k}" for k in range(n_layers)] or ["vector" if pooled else "vectors"]
    schema = arrow.schema(
        [
            ("number", arrow.int64()),
            ("tokens", arrow.list_(arrow.string())),
            ("spans", columns.span_type),
            *((name, columns.type) for name in names),
        ]
    )
    sink = _Sink()
    count = 0
    with arrow.ipc.new_stream(sink, schema) as writer:
        while records or not count:
            some, size = [], 0
            while records and size < _BATCH_NUMBERS:
                some.append(records.popleft())
                size += some[-1].values.size
            values = [record.values for record in some]
            parts = [[value[k] for value in values] for k in range(n_layers)] or [values]
            tokens = [[utf8(token) for token in record.tokens] for record in some]
            batch = arrow.record_batch(
                [
                    arrow.array(range(count, count + len(some)), arrow.int64()),
                    arrow.array(tokens, arrow.list_(arrow.string())),
                    arrow.array([record.spans for record in some], columns.span_type),
                    *(columns.make(part) for part in parts),
                ],
                schema=schema,
            )
            writer.write_batch(batch)
            count += len(some) or 1
            del some, values, parts, batch  # while the client reads
            yield sink.take()
    yield sink.take()

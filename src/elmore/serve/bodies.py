"""Bodies of requests and responses: strict JSON in; JSON, npz or an Arrow stream out.

npz has arrays "0", "1", ... for the sentences, or "vectors" if pooled, like the files of
`elmore embed --format npz`. The Arrow stream has the columns of its parquet files.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request

from elmore._imports import require
from elmore._messages import shown
from elmore.embedding.writers import Record, Settings
from elmore.embedding.writers.npz import NpzWriter
from elmore.embedding.writers.parquet import VectorColumns, utf8
from elmore.errors import MissingExtra
from elmore.serve.errors import ServiceError

__all__ = [
    "ARROW",
    "JSON",
    "NPZ",
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
    kind: str, head: dict[str, Any], records: Sequence[Record], pooled: bool
) -> bytes:
    """Encode sentences in a media type; `head` has the JSON fields before them."""
    if kind == NPZ:
        return _npz(records, pooled, int(head["dim"]))
    if kind == ARROW:
        return _arrow(records, pooled, int(head["dim"]))
    start = encode_json(head)[:-1].decode("utf-8")
    sentences = ",".join(_sentence(record, pooled) for record in records)
    return f'{start},"results":[{sentences}]}}'.encode("utf-8", "replace")


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


def numbers(values: NDArray[np.float32]) -> str:
    """An array as nested JSON lists, with seven digits."""
    if values.ndim > 1:
        if values.ndim == 2 and len(values):
            # One % for a matrix is several times as fast as json.dumps of its numbers.
            row = "[" + ",".join(["%.7g"] * values.shape[1]) + "]"
            return f"[{','.join([row] * len(values))}]" % tuple(values.ravel().tolist())
        return f"[{','.join(numbers(part) for part in values)}]"
    return "[" + ",".join(["%.7g"] * len(values)) % tuple(values.tolist()) + "]"


def _sentence(record: Record, pooled: bool) -> str:
    head: dict[str, Any] = {"tokens": record.tokens}
    if record.spans is not None:
        head["spans"] = record.spans
    all_layers = record.values.ndim == (2 if pooled else 3)
    key = "layers" if all_layers else "vector" if pooled else "vectors"
    start = encode_json(head)[:-1].decode("utf-8")
    return f'{start},"{key}":{numbers(record.values)}}}'


def _settings(records: Sequence[Record], pooled: bool, dim: int) -> Settings:
    values = records[0].values if records else np.zeros((dim,) if pooled else (0, dim), np.float32)
    shape: tuple[int | None, ...] = values.shape
    return Settings(shape=shape if pooled else (*shape[:-2], None, shape[-1]))


def _npz(records: Sequence[Record], pooled: bool, dim: int) -> bytes:
    stream = io.BytesIO()
    with tempfile.SpooledTemporaryFile(max_size=64 << 20) as spool:
        writer = NpzWriter(stream, spool, _settings(records, pooled, dim))  # type: ignore[arg-type]  # it is a BinaryIO
        for record in records:
            writer.write(record)
        writer.close()
    return stream.getvalue()


def _arrow(records: Sequence[Record], pooled: bool, dim: int) -> bytes:
    arrow = require("pyarrow", "parquet", "an Arrow stream")
    settings = _settings(records, pooled, dim)
    columns = VectorColumns(dim=int(settings.shape[-1] or 0), pooled=pooled)
    values = [record.values for record in records]
    names = ["vector" if pooled else "vectors"]
    parts = [values]
    if settings.all_layers:
        names = [f"layer_{k}" for k in range(int(settings.shape[0] or 0))]
        parts = [[value[k] for value in values] for k in range(len(names))]
    schema = arrow.schema(
        [
            ("number", arrow.int64()),
            ("tokens", arrow.list_(arrow.string())),
            ("spans", columns.span_type),
            *((name, columns.type) for name in names),
        ]
    )
    batch = arrow.record_batch(
        [
            arrow.array(range(len(records)), arrow.int64()),
            arrow.array(
                [[utf8(token) for token in record.tokens] for record in records],
                arrow.list_(arrow.string()),
            ),
            arrow.array([record.spans for record in records], columns.span_type),
            *(columns.make(part) for part in parts),
        ],
        schema=schema,
    )
    stream = io.BytesIO()
    with arrow.ipc.new_stream(stream, schema) as writer:
        writer.write_batch(batch)
    return stream.getvalue()

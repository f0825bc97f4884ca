"""One JSON object per line and sentence, to a file or a pipe.

    {"tokens": ["It", "fell"], "spans": [[0, 2], [3, 7]], "vectors": [[0.1, ...], [0.2, ...]]}

"vectors" is (time, dim); all layers are "layers", (layers, time, dim). With pooling they are
"vector", (dim,), and "layers", (layers, dim). "spans" is left out if tokens were given; "text"
comes first if sentences were split.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from elmore.base.io import open_checked
from elmore.embedding.vector_files import (
    Record,
    Settings,
    StoredRecord,
    damaged,
    output_stream,
    stored,
)

__all__ = ["NUMBER", "JsonlReader", "JsonlWriter", "Lines", "open", "read"]

# float32 in 7 digits is right to 1 part in 10 million; float16 needs 5 to be exact.
NUMBER = {"float32": "%.7g", "float16": "%.5g"}

_NUMBERS_AT_ONCE = 1 << 18


class JsonlWriter:
    """Writes records to a binary stream."""

    def __init__(self, stream: BinaryIO, settings: Settings) -> None:
        self._stream = stream
        self._settings = settings
        number = NUMBER[settings.dtype]
        # One % for a complete sentence is three times as fast as json.dumps of its numbers.
        self._row = "[" + ", ".join([number] * int(settings.shape[-1] or 0)) + "]"
        vectors = "vector" if settings.pooled else "vectors"
        self._key = "layers" if settings.all_layers else vectors

    def write(self, record: Record) -> None:
        """Write a line."""
        head: dict[str, Any] = {"text": record.text} if self._settings.texts else {}
        head["tokens"] = record.tokens
        if record.spans is not None:
            head["spans"] = record.spans
        values = stored(record, self._settings.dtype)
        start = json.dumps(head, ensure_ascii=False)[:-1]
        # Only a lone surrogate cannot be encoded, and no UTF-8 input holds one.
        self._stream.write(f'{start}, "{self._key}": '.encode("utf-8", "replace"))
        self._write_numbers(values)
        self._stream.write(b"}\n")

    def close(self) -> None:
        """Flush the last lines."""
        self._stream.flush()

    def _write_numbers(self, values: NDArray[Any]) -> None:
        """Write nested lists, a few rows at a time: numbers as Python objects need much memory."""
        if values.ndim > 2:
            for k, layer in enumerate(values):
                self._stream.write(b", " if k else b"[")
                self._write_numbers(layer)
            self._stream.write(b"]")
            return
        rows = values[None] if values.ndim == 1 else values
        self._stream.write(b"" if values.ndim == 1 else b"[")
        step = max(1, _NUMBERS_AT_ONCE // max(1, rows.shape[1]))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            template = ", ".join([self._row] * len(some))
            text = template % tuple(some.ravel().tolist())
            self._stream.write((", " * (start > 0) + text).encode("ascii"))
        self._stream.write(b"" if values.ndim == 1 else b"]")


@contextmanager
def open(path: Path | None, settings: Settings) -> Iterator[JsonlWriter]:
    """Open a file, or stdout for None."""
    with output_stream(path, settings) as stream:
        writer = JsonlWriter(stream, settings)
        yield writer
        writer.close()


class Lines:
    """The lines of a file by their number; where each starts is found when one is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream = open_checked(path, what="file of vectors")
        self._starts: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self._offsets()) - 1

    def __getitem__(self, k: int) -> bytes:
        start, end = self._offsets()[k : k + 2]
        self._stream.seek(start)
        return self._stream.read(end - start)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _offsets(self) -> NDArray[np.int64]:
        """Where each line starts, and where the last one ends."""
        if self._starts is None:
            self._stream.seek(0)
            lengths = np.fromiter((len(line) for line in self._stream), np.int64)
            self._starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return self._starts


class JsonlReader:
    """Reads one JSON object per line."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        self._shape: tuple[int | None, ...] | None = None

    @property
    def shape(self) -> tuple[int | None, ...]:
        """That of the first sentence with tokens: an empty one does not say how many numbers."""
        if self._shape is None:
            found = (self._parse(k)[1] for k in range(len(self)))
            self._shape = next((shape for shape in found if shape), ())
        return self._shape

    def __len__(self) -> int:
        return len(self._lines)

    def record(self, k: int) -> StoredRecord:
        """Parse a line."""
        fields, shape = self._parse(k)
        values = fields["values"]
        if not shape and self.shape:  # no tokens
            values = values.reshape(tuple(size or 0 for size in self.shape))
        spans = fields.get("spans")
        try:
            return StoredRecord(
                values,
                tuple(fields["tokens"]),
                None if spans is None else tuple((int(a), int(b)) for a, b in spans),
                fields.get("text"),
            )
        except (KeyError, TypeError, ValueError):
            raise damaged(self._lines.path, f"line {k + 1} is not one of ours") from None

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def _parse(self, k: int) -> tuple[dict[str, Any], tuple[int | None, ...]]:
        """The fields of a line, with its numbers as "values", and their shape; () if it is open."""
        try:
            fields = json.loads(self._lines[k])
            key = next(name for name in ("vector", "vectors", "layers") if name in fields)
            values = fields["values"] = np.array(fields.pop(key), np.float32)
        except (ValueError, TypeError, RecursionError, StopIteration):
            raise damaged(self._lines.path, f"line {k + 1} is not one of ours") from None
        if not values.size:
            return fields, ()
        pooled = key == "vector" or (key == "layers" and values.ndim == 2)
        shape = values.shape
        return fields, shape if pooled else (*shape[:-2], None, shape[-1])


def read(path: Path) -> JsonlReader:
    """Open a file."""
    return JsonlReader(path)

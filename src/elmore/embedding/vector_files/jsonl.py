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

from numpy.typing import NDArray

from elmore.embedding.vector_files import (
    Record,
    Settings,
    output_stream,
    stored,
)

__all__ = ["JsonlWriter", "open"]

# float32 in 7 digits is right to 1 part in 10 million; float16 needs 5 to be exact.
_NUMBER = {"float32": "%.7g", "float16": "%.5g"}

_NUMBERS_AT_ONCE = 1 << 18


class JsonlWriter:
    """Writes records to a binary stream."""

    def __init__(self, stream: BinaryIO, settings: Settings) -> None:
        self._stream = stream
        self._settings = settings
        number = _NUMBER[settings.dtype]
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

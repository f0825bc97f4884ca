"""One JSON object a line for each sentence, to a file or a pipe.

    {"tokens": ["It", "fell"], "spans": [[0, 2], [3, 7]], "vectors": [[0.1, ...], [0.2, ...]]}

"vectors" is (time, dim); all layers are "layers", (layers, time, dim). Pooled they are "vector",
(dim,), and "layers", (layers, dim). "spans" is left out where tokens were given, "text" stands in
front where sentences were split.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from elmore._atomic import atomic_file
from elmore.embedding.writers import Record, Settings
from elmore.embedding.writers.storing import stored
from elmore.errors import ElmoreError

__all__ = ["JsonlWriter", "open"]

# float32 in 7 digits is right to 1 part in 10 million; float16 needs 5 to be exact.
_NUMBER = {"float32": "%.7g", "float16": "%.5g"}


class JsonlWriter:
    """Writes records to a binary stream."""

    def __init__(self, stream: BinaryIO, settings: Settings) -> None:
        self._stream = stream
        self._settings = settings
        number = _NUMBER[settings.dtype]
        # One % for a whole sentence is three times as fast as json.dumps of its numbers.
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
        numbers = self._template(values) % tuple(values.ravel().tolist())
        # Only a lone surrogate cannot be encoded, and no UTF-8 input holds one.
        line = f'{start}, "{self._key}": {numbers}}}\n'.encode("utf-8", "replace")
        self._stream.write(line)

    def close(self) -> None:
        """Bring the last lines on their way."""
        self._stream.flush()

    def _template(self, values: NDArray[Any]) -> str:
        template = self._row
        for length in values.shape[-2::-1]:
            template = "[" + ", ".join([template] * length) + "]"
        return template


@contextmanager
def open(path: Path | None, settings: Settings) -> Iterator[JsonlWriter]:
    """Open a file, or stdout for None."""
    if path is None:
        if sys.stdout is None:  # closed before we were started
            raise ElmoreError("stdout is closed; pass -o FILE")
        writer = JsonlWriter(sys.stdout.buffer, settings)
        yield writer
        writer.close()
        return
    with atomic_file(path, overwrite=settings.overwrite) as stream:
        writer = JsonlWriter(stream, settings)
        yield writer
        writer.close()

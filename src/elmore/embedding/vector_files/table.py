"""CSV and TSV for spreadsheets and pandas: a line per sentence, so only with pooling.

    number,text,v0,v1,...

All layers are `layer0_v0`, `layer0_v1`, …, `layer1_v0`, … Line breaks in a text become spaces, so
that a line is a sentence. CSV puts a text into quotes where it must; TSV has no quotes, and tabs in
a text become spaces too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from elmore.embedding.vector_files import (
    Record,
    Settings,
    StoredRecord,
    damaged,
    output_stream,
    stored,
)
from elmore.embedding.vector_files.jsonl import NUMBER, Lines

__all__ = ["TableReader", "TableWriter", "open", "open_tsv", "read"]

_BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")


class TableWriter:
    """Writes lines to a binary stream, the header first."""

    def __init__(self, stream: BinaryIO, settings: Settings, delimiter: str) -> None:
        self._stream = stream
        self._settings = settings
        self._delimiter = delimiter
        self._count = settings.first
        dim = int(settings.shape[-1] or 0)
        names = [f"v{k}" for k in range(dim)]
        if settings.all_layers:
            layers = range(int(settings.shape[0] or 0))
            names = [f"layer{layer}_{name}" for layer in layers for name in names]
        self._numbers = delimiter.join([NUMBER[settings.dtype]] * len(names)) + "\n"
        self._line("number", "text", delimiter.join(names) + "\n")

    def write(self, record: Record) -> None:
        """Write a line."""
        values = stored(record, self._settings.dtype)
        numbers = self._numbers % tuple(values.ravel().tolist())
        self._line(str(self._count), self._cell(record.text), numbers)
        self._count += 1

    def close(self) -> None:
        """Flush the last lines."""
        self._stream.flush()

    def _line(self, *cells: str) -> None:
        self._stream.write(self._delimiter.join(cells).encode("utf-8", "replace"))

    def _cell(self, text: str) -> str:
        text = _BREAKS.sub(" ", text)
        if self._delimiter == "\t":
            return text.replace("\t", " ")
        return f'"{text.replace(chr(34), chr(34) * 2)}"' if set(text) & set(',"') else text


def open(path: Path | None, settings: Settings) -> AbstractContextManager[TableWriter]:
    """Open a CSV file, or stdout for None."""
    return _opened(path, settings, ",")


def open_tsv(path: Path | None, settings: Settings) -> AbstractContextManager[TableWriter]:
    """Open a TSV file, or stdout for None."""
    return _opened(path, settings, "\t")


@contextmanager
def _opened(path: Path | None, settings: Settings, delimiter: str) -> Iterator[TableWriter]:
    with output_stream(path, settings) as stream:
        writer = TableWriter(stream, settings, delimiter)
        yield writer
        writer.close()


class TableReader:
    """Reads lines that `TableWriter` wrote; the header says which kind of table it is."""

    def __init__(self, path: Path) -> None:
        self._lines = lines = Lines(path)
        header = lines[0].decode("utf-8", "replace").strip() if len(lines) else ""
        self._delimiter = "\t" if header.startswith("number\ttext\t") else ","
        names = header.split(self._delimiter)
        if names[:2] != ["number", "text"] or len(names) < 3:
            lines.close()
            raise damaged(path, "it does not start with number, text, v0, ...")
        layer = re.fullmatch(r"layer(\d+)_v(\d+)", names[-1])
        sizes = [int(number) + 1 for number in layer.groups()] if layer else [len(names) - 2]
        self.shape: tuple[int | None, ...] = tuple(sizes)

    def __len__(self) -> int:
        return len(self._lines) - 1

    def record(self, k: int) -> StoredRecord:
        """Parse a line."""
        sizes = [size or 0 for size in self.shape]
        try:
            line = self._lines[k + 1].decode("utf-8").rstrip("\r\n")
            # From the right: only the text can hold the delimiter.
            head, *numbers = line.rsplit(self._delimiter, math.prod(sizes))
            values = np.array(numbers, np.float32).reshape(sizes)
        except ValueError:
            raise damaged(self._lines.path, f"line {k + 2} is not one of ours") from None
        text = head.partition(self._delimiter)[2]
        if self._delimiter == "," and text.startswith('"'):
            text = text[1:-1].replace('""', '"')
        return StoredRecord(values, text=text)

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


def read(path: Path) -> TableReader:
    """Open a file of either kind."""
    return TableReader(path)

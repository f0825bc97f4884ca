"""Files of vectors: the table of formats, and what a writer is given.

Nothing here imports numpy or h5py, so that the command line can list the formats at no cost.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

from elmore.base.atomic import atomic_file
from elmore.errors import ConfigError, ElmoreError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from elmore.options import StoredType

__all__ = [
    "WRITERS",
    "Record",
    "Settings",
    "Writer",
    "WriterInfo",
    "check_format",
    "open_writer",
    "output_stream",
    "stored",
    "utf8",
]


class Record(NamedTuple):
    """What is written for one sentence.

    Attributes:
        text: the sentence as it was read.
        tokens: its tokens.
        spans: where each token is in `text`, or None if tokens were given.
        values: (time, dim); (layers, time, dim) for all layers; without the time axis if pooled.
    """

    text: str
    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...] | None
    values: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a writer must know before the first record.

    Attributes:
        shape: of the values of a record, None for the tokens: (None, dim), (layers, None, dim),
            or, pooled, (dim,) and (layers, dim).
        dtype: how numbers are stored.
        texts: whether to write the text, because it is not a line of the input.
        sentence_index: hdf5: whether to write `sentence_to_index`; None for up to a million.
        sentence_keys: hdf5: name each dataset after its line instead of its number, and leave
            `sentence_to_index` out.
        overwrite: replace a file that exists.
        first: number of the first record, if the file is one of several.
    """

    shape: tuple[int | None, ...]
    dtype: StoredType = "float32"
    texts: bool = False
    sentence_index: bool | None = None
    sentence_keys: bool = False
    overwrite: bool = False
    first: int = 0

    @property
    def pooled(self) -> bool:
        """Whether a record has one vector, not one per token."""
        return None not in self.shape

    @property
    def all_layers(self) -> bool:
        """Whether a record has all layers, not a mix of them."""
        return len(self.shape) - (not self.pooled) == 2


class Writer(Protocol):
    """Takes the records, in order."""

    def write(self, record: Record) -> None:
        """Write a record."""

    def close(self) -> None:
        """Write what comes after the last record."""


class WriterInfo(NamedTuple):
    """One format.

    Attributes:
        module: in this folder, imported when it is needed. Its `open(path, settings)` is a context
            manager that gives a `Writer`; the file appears under its name only when it is complete.
        suffixes: file names that mean this format.
        streams: whether it can be written to a pipe.
        pooled: whether it holds one vector per sentence only.
    """

    module: str
    suffixes: tuple[str, ...]
    streams: bool = False
    pooled: bool = False


WRITERS: dict[str, WriterInfo] = {
    "jsonl": WriterInfo("jsonl", (".jsonl", ".json", ".txt"), streams=True),
    "npz": WriterInfo("npz", (".npz",)),
    "npy": WriterInfo("npy", (".npy",), pooled=True),
    "hdf5": WriterInfo("hdf5", (".hdf5", ".h5")),
    "parquet": WriterInfo("parquet", (".parquet",)),
}


def check_format(name: str, *, pooled: bool) -> None:
    """Refuse a format that cannot hold one vector per token, if these are asked for."""
    if WRITERS[name].pooled and not pooled:
        raise ConfigError(
            f"{name} holds one vector per sentence; pass --pool mean, or use npz for one per token"
        )


def open_writer(name: str, path: Path | None, settings: Settings) -> AbstractContextManager[Writer]:
    """Open a writer by the name of its format, for a file or, with None, for stdout."""
    info = WRITERS[name]
    if path is None and not info.streams:
        raise ConfigError(f"{name} cannot be written to a pipe; pass -o FILE")
    check_format(name, pooled=settings.pooled)
    module = importlib.import_module(f"{__name__}.{info.module}")
    writer: AbstractContextManager[Writer] = module.open(path, settings)
    return writer


def output_stream(path: Path | None, settings: Settings) -> AbstractContextManager[BinaryIO]:
    """The file of a format that streams, or stdout for None."""
    if path is not None:
        return atomic_file(path, overwrite=settings.overwrite)
    if sys.stdout is None:  # closed before we were started
        raise ElmoreError("stdout is closed; pass -o FILE")
    return nullcontext(sys.stdout.buffer)


def stored(record: Record, dtype: StoredType) -> NDArray[Any]:
    """The values of a record as they go into a file.

    Raises:
        ConfigError: a value is too large for float16.
    """
    # Here and not at the top: the command line lists the formats without loading numpy.
    from elmore.formats.checkpoint import as_stored

    return as_stored(record.values, dtype, what="a vector")


def utf8(text: str) -> str:
    """A text with "?" for lone surrogates, which UTF-8 cannot hold and no UTF-8 input has."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")

"""Files of vectors: the table of formats, what a writer is given, and what a reader gives.

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
from elmore.base.messages import shown
from elmore.errors import ConfigError, ElmoreError, FormatError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from elmore.options import StoredType

__all__ = [
    "WRITERS",
    "Reader",
    "Record",
    "Settings",
    "StoredRecord",
    "Writer",
    "WriterInfo",
    "check_format",
    "damaged",
    "open_reader",
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


class StoredRecord(NamedTuple):
    """What a file holds of one sentence; None for what its format or its writer left out.

    Attributes:
        values: shaped like those of a `Record`, in the type of the file.
        tokens: its tokens.
        spans: where each token is in the text.
        text: the sentence as it was read.
    """

    values: NDArray[Any]
    tokens: tuple[str, ...] | None = None
    spans: tuple[tuple[int, int], ...] | None = None
    text: str | None = None


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


class Reader(Protocol):
    """An open file of vectors; nothing is read before it is asked for."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """As in `Settings`; () for a file without sentences that does not say."""

    def __len__(self) -> int:
        """How many sentences there are."""

    def record(self, k: int) -> StoredRecord:
        """Read a sentence, counted from 0 in this file."""

    def close(self) -> None:
        """Close the file."""


class WriterInfo(NamedTuple):
    """One format.

    Attributes:
        module: in this folder, imported when it is needed. Its `open(path, settings)` is a context
            manager that gives a `Writer`; the file appears under its name only when it is complete.
            Its `read(path)` gives a `Reader`.
        suffixes: file names that mean this format.
        streams: whether it can be written to a pipe.
        pooled: whether it holds one vector per sentence only.
        opener: the function to call instead of `open`.
    """

    module: str
    suffixes: tuple[str, ...]
    streams: bool = False
    pooled: bool = False
    opener: str = "open"


WRITERS: dict[str, WriterInfo] = {
    "jsonl": WriterInfo("jsonl", (".jsonl", ".json", ".txt"), streams=True),
    "npz": WriterInfo("npz", (".npz",)),
    "npy": WriterInfo("npy", (".npy",), pooled=True),
    "hdf5": WriterInfo("hdf5", (".hdf5", ".h5")),
    "parquet": WriterInfo("parquet", (".parquet",)),
    "safetensors": WriterInfo("safetensors", (".safetensors",)),
    "csv": WriterInfo("table", (".csv",), streams=True, pooled=True),
    "tsv": WriterInfo("table", (".tsv",), streams=True, pooled=True, opener="open_tsv"),
}


def check_format(name: str, *, pooled: bool) -> None:
    """Refuse a format that cannot hold one vector per token, if these are asked for."""
    if WRITERS[name].pooled and not pooled:
        raise ConfigError(
            f"{name} holds one vector per sentence; pass --pool mean, or use npz or safetensors "
            "for one per token"
        )


def open_writer(name: str, path: Path | None, settings: Settings) -> AbstractContextManager[Writer]:
    """Open a writer by the name of its format, for a file or, with None, for stdout."""
    info = WRITERS[name]
    if path is None and not info.streams:
        raise ConfigError(f"{name} cannot be written to a pipe; pass -o FILE")
    check_format(name, pooled=settings.pooled)
    module = importlib.import_module(f"{__name__}.{info.module}")
    writer: AbstractContextManager[Writer] = getattr(module, info.opener)(path, settings)
    return writer


def open_reader(name: str, path: Path) -> Reader:
    """Open a file of vectors by the name of its format.

    Raises:
        FormatError: it is damaged, or not a file of vectors.
    """
    module: Any = importlib.import_module(f"{__name__}.{WRITERS[name].module}")
    reader: Reader = module.read(path)
    return reader


def damaged(path: Path, problem: object) -> FormatError:
    """The error for a file of vectors that cannot be read."""
    return FormatError(
        f"'{shown(path, 120)}' is not a complete file of vectors: {shown(problem, 120)}; write it "
        "again with `elmore embed`"
    )


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

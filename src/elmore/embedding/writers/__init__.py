"""Files of vectors: the table of writers, and what a writer is given.

Nothing here imports numpy or h5py, so that the command line can list the formats at no cost.
"""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from elmore.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from elmore.options import StoredType

__all__ = ["WRITERS", "Record", "Settings", "Writer", "WriterInfo", "open_writer", "stored"]


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
        module: imported when it is needed. Its `open(path, settings)` is a context manager that
            gives a `Writer`; the file appears under its name only when it is complete.
        suffixes: file names that mean this format.
        streams: whether it can be written to a pipe.
    """

    module: str
    suffixes: tuple[str, ...]
    streams: bool


WRITERS: dict[str, WriterInfo] = {
    "jsonl": WriterInfo("elmore.embedding.writers.jsonl", (".jsonl", ".json", ".txt"), True),
    "npz": WriterInfo("elmore.embedding.writers.npz", (".npz",), False),
    "hdf5": WriterInfo("elmore.embedding.writers.hdf5", (".hdf5", ".h5"), False),
    "parquet": WriterInfo("elmore.embedding.writers.parquet", (".parquet",), False),
    "safetensors": WriterInfo("elmore.embedding.writers.safetensors", (".safetensors",), False),
}


def open_writer(name: str, path: Path | None, settings: Settings) -> AbstractContextManager[Writer]:
    """Open a writer by the name of its format, for a file or, with None, for stdout."""
    if path is None and not WRITERS[name].streams:
        raise ConfigError(f"{name} cannot be written to a pipe; pass -o FILE")
    module: Any = importlib.import_module(WRITERS[name].module)
    writer: AbstractContextManager[Writer] = module.open(path, settings)
    return writer


def stored(record: Record, dtype: StoredType) -> NDArray[Any]:
    """The values of a record as they go into a file.

    Raises:
        ConfigError: a value is too large for float16.
    """
    # Here and not at the top: the command line lists the formats without loading numpy.
    from elmore.formats.checkpoint import as_stored

    return as_stored(record.values, dtype, what="a vector")

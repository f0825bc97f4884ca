"""Files of vectors as sequences: every format that `elmore embed` writes, read when asked."""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from elmore.base.io import open_checked
from elmore.base.messages import shown
from elmore.bulk.output_folder import MANIFEST, read_manifest
from elmore.embedding.vector_files import WRITERS, Reader, StoredRecord, damaged, open_reader
from elmore.embedding.vector_files.npy import MatrixReader
from elmore.errors import ConfigError

__all__ = ["Vectors", "holds_vectors", "read_vectors"]


class Vectors(Sequence[StoredRecord]):
    """The sentences of a file of vectors, or of a folder of shards; made by `read_vectors`.

    Indexing and iteration read from the file, one sentence at a time.

    Attributes:
        path: the file or folder.
        format: its format, or that of the shards.
        shape: of the values of a sentence, None for the tokens: (None, dim), (layers, None, dim),
            or, pooled, (dim,) and (layers, dim). () if there are no sentences to tell it.
    """

    def __init__(self, path: Path, form: str, reader: Reader) -> None:
        self.path = path
        self.format = form
        self._reader = reader
        weakref.finalize(self, reader.close)  # readers of a few lines forget to close

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of a sentence's values."""
        return self._reader.shape

    @property
    def pooled(self) -> bool:
        """Whether a sentence has one vector, not one per token."""
        return None not in self.shape

    @property
    def dim(self) -> int:
        """The size of a vector."""
        return int((self.shape or (0,))[-1] or 0)

    def __len__(self) -> int:
        return len(self._reader)

    @overload
    def __getitem__(self, k: int) -> StoredRecord: ...
    @overload
    def __getitem__(self, k: slice) -> list[StoredRecord]: ...
    def __getitem__(self, k: int | slice) -> StoredRecord | list[StoredRecord]:
        """Read a sentence, or some of them."""
        count = len(self)
        if isinstance(k, slice):
            return [self._reader.record(n) for n in range(*k.indices(count))]
        if not -count <= k < count:
            raise IndexError(f"sentence {k} of {count}")
        return self._reader.record(k % count)

    def __iter__(self) -> Iterator[StoredRecord]:
        return (self._reader.record(k) for k in range(len(self)))

    def __repr__(self) -> str:
        return f"Vectors('{self.path}', {len(self)} sentences, shape={self.shape})"

    def matrix(self) -> NDArray[Any]:
        """All vectors of a pooled file, (n, dim) or (n, layers, dim); mapped where it can be."""
        if not self.pooled:
            raise ConfigError(
                f"'{shown(self.path, 120)}' has one vector per token; take the values of each "
                "sentence, or write it with --pool mean"
            )
        if isinstance(self._reader, MatrixReader):
            return self._reader.matrix()
        sizes = tuple(size or 0 for size in self.shape)
        dtype = self[0].values.dtype if len(self) else np.float32
        result = np.empty((len(self), *sizes), dtype)
        for k, record in enumerate(self):
            result[k] = record.values
        return result

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def read_vectors(path: str | Path) -> Vectors:
    """Open what `elmore embed` wrote: a file of any format, or a folder of shards.

    Files of the old `allennlp elmo` command are HDF5 of the same layout.

    Args:
        path: the file or folder; the suffix tells the format.

    Returns:
        a sequence of sentences with `values`, `tokens`, `spans` and `text`. What the format
        does not hold is None. Nothing is read before it is asked for.

    Raises:
        FormatError: missing, damaged, or not a file of vectors.
        ConfigError: an unknown suffix.
    """
    path = Path(path)
    if path.is_dir():
        shards = _Shards(path)
        return Vectors(path, shards.format, shards)
    open_checked(path, what="file of vectors").close()
    form = _format(path)
    if form is None:
        known = ", ".join(suffix for info in WRITERS.values() for suffix in info.suffixes)
        raise ConfigError(f"'{shown(path, 120)}' has an unknown suffix; known are {known}")
    return Vectors(path, form, open_reader(form, path))


def holds_vectors(path: Path) -> bool:
    """Whether a path is what `read_vectors` takes, rather than a model."""
    if path.is_dir():
        return (path / MANIFEST).is_file() and not (path / "config.json").exists()
    form = _format(path) if path.is_file() else None
    if form == "hdf5":
        from elmore.embedding.vector_files.hdf5 import is_vectors
    elif form == "safetensors":
        from elmore.embedding.vector_files.safetensors import is_vectors
    else:  # .json and .txt are files of models, if anything
        return form is not None and path.suffix.lower() not in (".json", ".txt")
    return is_vectors(path)


def _format(path: Path) -> str | None:
    suffix = path.suffix.lower()
    return next((name for name, info in WRITERS.items() if suffix in info.suffixes), None)


class _Shards:
    """The shards of a folder, one after the other; one is open."""

    def __init__(self, folder: Path) -> None:
        found = read_manifest(folder)
        if found is None:
            raise damaged(folder, f"it has no {MANIFEST}, which a finished run writes")
        manifest, self._shards = found
        self._folder = folder
        self._starts = [shard.first for shard in self._shards]
        self._count = sum(shard.sentences for shard in self._shards)
        self._open: tuple[int, Reader] | None = None
        self.format = str(manifest.get("settings", {}).get("format"))
        if self.format not in WRITERS:
            raise damaged(folder, f"its shards have the format {self.format}")

    @property
    def shape(self) -> tuple[int | None, ...]:
        """That of the first shard."""
        return self._reader(0).shape if self._shards else ()

    def __len__(self) -> int:
        return self._count

    def record(self, k: int) -> StoredRecord:
        """Read a sentence of a shard."""
        number = bisect.bisect_right(self._starts, k) - 1
        return self._reader(number).record(k - self._starts[number])

    def close(self) -> None:
        """Close the shard that is open."""
        if self._open is not None:
            self._open[1].close()
        self._open = None

    def _reader(self, number: int) -> Reader:
        if self._open is None or self._open[0] != number:
            self.close()
            # Not a path from the manifest: it could lead out of the folder.
            path = self._folder / Path(self._shards[number].file).name
            self._open = number, open_reader(self.format, path)
            if len(self._open[1]) != self._shards[number].sentences:
                raise damaged(path, "it has another number of sentences than the manifest says")
        return self._open[1]

"""Files of vectors: the formats, what is written for a sentence, and jsonl, npy and npz.

    jsonl  {"tokens": ["It", "fell"], "spans": [[0, 2], [3, 7]], "vectors": [[0.1, ...], ...]},
           one line per sentence, to a file or a pipe. All layers are "layers"; with pooling there
           is one "vector". "spans" is left out if tokens were given; "text" comes first if
           sentences were split.
    npy    one array that `numpy.load` can map: a row per sentence, so only with pooling.
    npz    arrays "0", "1", ... for the sentences; with pooling one array "vectors". Only its table
           of contents is in memory, about 350 bytes per sentence.

`hdf5_file.py` and `parquet_file.py` have the others. Importing this loads neither numpy nor h5py,
so that the command line can list the formats at no cost.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from elmore.base.atomic import atomic_file
from elmore.errors import ConfigError, ElmoreError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from elmore.options import StoredType


class VectorFormat(NamedTuple):
    """A format of files of vectors.

    Attributes:
        suffixes: those that mean it; the first is that of shards.
        writer: its module in this package and the function there that writes records.
        one_each: whether it holds nothing but one vector per sentence.
        to_pipe: whether it can be written where one cannot seek.
    """

    suffixes: tuple[str, ...]
    writer: tuple[str, str]
    one_each: bool = False
    to_pipe: bool = False


VECTOR_FORMATS = {
    "jsonl": VectorFormat(
        (".jsonl", ".json", ".txt"), ("vector_files", "_write_jsonl"), to_pipe=True
    ),
    "npz": VectorFormat((".npz",), ("vector_files", "_write_npz")),
    "npy": VectorFormat((".npy",), ("vector_files", "_write_npy"), one_each=True),
    "hdf5": VectorFormat((".hdf5", ".h5"), ("hdf5_file", "write")),
    "parquet": VectorFormat((".parquet",), ("parquet_file", "write")),
}
# float32 in 7 digits is right to 1 part in 10 million; float16 needs 5 to be exact.
_NUMBER = {"float32": "%.7g", "float16": "%.5g"}
_HEADER_ROOM = 4096  # more than the header of an array takes


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
        sentence_index: hdf5: whether to write `sentence_to_index`, for up to a million lines.
        sentence_keys: hdf5: name each dataset after its line instead of its number, and leave
            `sentence_to_index` out.
        overwrite: replace a file that exists.
        first: number of the first record, if the file is one of several.
    """

    shape: tuple[int | None, ...]
    dtype: StoredType = "float32"
    texts: bool = False
    sentence_index: bool = True
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


def check_format(name: str, *, pooled: bool) -> None:
    """Refuse a format that cannot hold one vector per token, if these are asked for."""
    if VECTOR_FORMATS[name].one_each and not pooled:
        raise ConfigError(
            f"{name} holds one vector per sentence; pass --pool mean, or use npz for one per token"
        )


def write_vectors(
    name: str, path: Path | None, records: Iterable[Record], settings: Settings
) -> None:
    """Write records in order; the file appears under its name only when it is complete.

    Args:
        name: of the format.
        path: the file; None for stdout.
        records: read one by one, when the file is open.
        settings: what the format must know before the first record.
    """
    if path is None and not VECTOR_FORMATS[name].to_pipe:
        raise ConfigError(f"{name} cannot be written to a pipe; pass -o FILE")
    check_format(name, pooled=settings.pooled)
    module, function = VECTOR_FORMATS[name].writer
    write: Callable[[BinaryIO, Iterable[Record], Settings], None]
    write = getattr(importlib.import_module(f"elmore.embedding.{module}"), function)
    if path is None:
        if sys.stdout is None:  # closed before we were started
            raise ElmoreError("stdout is closed; pass -o FILE")
        opened: AbstractContextManager[BinaryIO] = nullcontext(sys.stdout.buffer)
    else:
        opened = atomic_file(path, overwrite=settings.overwrite)
    with opened as stream:
        write(stream, records, settings)


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


def _write_jsonl(stream: BinaryIO, records: Iterable[Record], settings: Settings) -> None:
    row = "[" + ", ".join([_NUMBER[settings.dtype]] * int(settings.shape[-1] or 0)) + "]"
    key = "vector" if settings.pooled else "vectors"
    key = "layers" if settings.all_layers else key
    for record in records:
        head: dict[str, Any] = {"text": record.text} if settings.texts else {}
        head["tokens"] = record.tokens
        if record.spans is not None:
            head["spans"] = record.spans
        values = stored(record, settings.dtype)
        start = json.dumps(head, ensure_ascii=False)[:-1]
        # Only a lone surrogate cannot be encoded, and no UTF-8 input holds one.
        stream.write(f'{start}, "{key}": '.encode("utf-8", "replace"))
        stream.writelines(json_numbers(values, row, b", "))
        stream.write(b"}\n")
    stream.flush()


def json_numbers(values: NDArray[Any], row: str, comma: bytes) -> Iterator[bytes]:
    """An array as nested JSON lists, row by row: all numbers as Python objects need much memory.

    `row` is the format of the last axis; one % for it is several times as fast as json.dumps.
    """
    if values.ndim == 1:
        yield (row % tuple(values.tolist())).encode("ascii")
        return
    yield b"["
    for k, part in enumerate(values):
        yield comma if k else b""
        yield from json_numbers(part, row, comma)
    yield b"]"


def _write_npy(stream: BinaryIO, records: Iterable[Record], settings: Settings) -> None:
    from numpy.lib.format import write_array_header_1_0

    descr = "<f2" if settings.dtype == "float16" else "<f4"
    header = {"descr": descr, "fortran_order": False, "shape": (0, *settings.shape)}
    write_array_header_1_0(stream, header)
    count = 0
    for record in records:
        stream.write(stored(record, settings.dtype).tobytes())
        count += 1
    # numpy leaves space for the number of rows, which is only known now.
    stream.seek(0)
    write_array_header_1_0(stream, {**header, "shape": (count, *settings.shape)})


def _write_npz(stream: BinaryIO, records: Iterable[Record], settings: Settings) -> None:
    from numpy.lib.format import write_array

    # Not compressed: numbers hardly shrink, and numpy.savez does the same.
    archive = zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED)

    def member(name: str, size: int) -> Any:
        info = zipfile.ZipInfo(f"{name}.npy")  # of a fixed date: same input, same bytes
        info.file_size = size + _HEADER_ROOM  # tells zipfile whether 4 GiB are enough
        return archive.open(info, "w")

    try:
        if settings.pooled:
            with tempfile.TemporaryFile(dir=Path(stream.name).parent) as spool:
                _write_npy(spool, records, settings)
                size = spool.seek(0, 2)
                spool.seek(0)
                with member("vectors", size) as file:
                    shutil.copyfileobj(spool, file, 1 << 20)
        else:
            for number, record in enumerate(records, settings.first):
                values = stored(record, settings.dtype)
                with member(str(number), values.nbytes) as file:
                    write_array(file, values, allow_pickle=False)
        archive.close()
    except BaseException:
        archive.fp = None  # or it writes its table of contents when it is collected
        raise

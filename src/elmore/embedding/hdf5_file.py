"""HDF5 in the layout of the old `allennlp elmo` command.

One dataset per sentence, its key the number of the sentence from 0 over the complete input:
(layers, time, dim) for all layers, else (time, dim); with pooling without the time axis.
`sentence_to_index`, shape (1,), holds a JSON object of each line, stripped, to its key; of equal
lines the last one counts. New are attributes of each dataset, which old readers do not see:
`tokens`, (time,) strings, and `spans`, (time, 2) int32, if the tokens came from a text. Files of
pooled vectors have the attribute `pooled`.

Of the lines only that JSON object is in memory, some 300 bytes for each. So it is left out above a
million lines; a reader would have to hold it too.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np

from elmore.base.messages import shown
from elmore.embedding.vector_files import Record, Settings, stored, utf8
from elmore.errors import ConfigError

_INDEX = "sentence_to_index"

_MAX_LINES = 1_000_000
# Files of HDF5 1.8 (2008), which every h5py reads. The older layout, h5py's default, holds the
# names of a group in one block of memory: 200,000 datasets cost it 15 MB more, this one nothing.
_VERSIONS = ("v108", "v108")


def write(stream: BinaryIO, records: Iterable[Record], settings: Settings) -> None:
    """Write records into a file that is open for reading and writing."""
    import h5py

    strings = h5py.string_dtype("utf-8")
    with h5py.File(stream, "w", libver=_VERSIONS) as file:
        if settings.pooled:  # (layers, dim) and (time, dim) look the same
            file.attrs["pooled"] = True
        indexed = settings.sentence_index and not settings.sentence_keys
        index: dict[str, str] = {}  # of equal lines the last one stays
        for count, record in enumerate(records):
            values, line = stored(record, settings.dtype), record.text.strip()
            number = str(settings.first + count)
            key = _sentence_key(file, line) if settings.sentence_keys else number.encode()
            try:
                # Without times: same input, same bytes.
                dataset = file.create_dataset(key, data=values, track_times=False)
            except (TypeError, ValueError):
                if not settings.sentence_keys:
                    raise
                # A "/" opens a group, which needs a name after it and one of its own before it.
                raise _not_a_key(f"the line {shown(line, 60)!r} has a slash") from None
            # A string of HDF5 ends at its first NUL, and none can hold a lone surrogate.
            tokens = [utf8(token).replace("\0", "\ufffd") for token in record.tokens]
            dataset.attrs.create("tokens", tokens, dtype=strings)
            if record.spans is not None:
                spans = np.array(record.spans, np.int32).reshape(-1, 2)
                dataset.attrs.create("spans", spans)
            if indexed and count == _MAX_LINES:
                warnings.warn(
                    f"over {_MAX_LINES} lines: sentence_to_index is left out; use the numbers of "
                    "the lines",
                    stacklevel=2,
                )
                indexed, index = False, {}
            if indexed:
                index.pop(line, None)  # or it would keep the place of the first
                index[line] = number
        if indexed:
            file.create_dataset(_INDEX, (1,), strings)[0] = json.dumps(index)


def _sentence_key(file: Any, line: str) -> bytes:
    if not line or line in file:
        raise _not_a_key(
            f"the line {shown(line, 60)!r} occurs twice" if line else "a line is blank"
        )
    return line.encode("utf-8", "surrogateescape")


def _not_a_key(what: str) -> ConfigError:
    return ConfigError(f"{what} and cannot be the name of a dataset; use numbers as names")

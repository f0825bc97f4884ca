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
    from h5py import h5d, h5o, h5p, h5s, h5t

    with h5py.File(stream, "w", libver=_VERSIONS) as file:
        if settings.pooled:  # (layers, dim) and (time, dim) look the same
            file.attrs["pooled"] = True
        indexed = settings.sentence_index and not settings.sentence_keys
        index: dict[str, str] = {}  # of equal lines the last one stays
        number_type = h5t.IEEE_F16LE if settings.dtype == "float16" else h5t.IEEE_F32LE
        properties = h5p.create(h5p.DATASET_CREATE)
        properties.set_obj_track_times(False)  # same input, same bytes
        links = h5p.create(h5p.LINK_CREATE)
        links.set_char_encoding(h5t.CSET_UTF8)
        links.set_create_intermediate_group(True)  # a "/" in a line opens a group
        for count, record in enumerate(records):
            values, line = stored(record, settings.dtype), record.text.strip()
            number = str(settings.first + count)
            key = _sentence_key(file, line) if settings.sentence_keys else number.encode()
            # h5py's own create_dataset takes three times as long.
            space = h5s.create_simple(values.shape)
            dataset = h5d.create(file.id, None, number_type, space, properties)
            h5o.link(dataset, file.id, key, lcpl=links)
            if values.size:
                dataset.write(h5s.ALL, h5s.ALL, values)
            _describe(dataset, record)
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
            dataset = file.create_dataset(_INDEX, (1,), h5py.string_dtype("utf-8"))
            dataset[0] = json.dumps(index)


def _sentence_key(file: Any, line: str) -> bytes:
    if not line or line in file:
        what = f"the line {shown(line, 60)!r} occurs twice" if line else "a line is blank"
        raise ConfigError(f"{what} and cannot be the name of a dataset; use numbers as names")
    return line.encode("utf-8", "surrogateescape")


def _describe(dataset: Any, record: Record) -> None:
    """Write the attributes of a dataset."""
    import h5py
    from h5py import h5a, h5s, h5t

    # A string of HDF5 ends at its first NUL, and none can hold a lone surrogate.
    tokens = [utf8(token).replace("\0", "\ufffd") for token in record.tokens]
    strings = h5t.py_create(h5py.string_dtype(), logical=True)
    attribute = h5a.create(dataset, b"tokens", strings, h5s.create_simple((len(tokens),)))
    if tokens:
        attribute.write(np.array(tokens, object))
    if record.spans is not None:
        spans = np.array(record.spans, np.int32).reshape(-1, 2)
        space = h5s.create_simple(spans.shape)
        attribute = h5a.create(dataset, b"spans", h5t.STD_I32LE, space)
        if tokens:
            attribute.write(spans)

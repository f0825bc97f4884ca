"""Every size limit of the package in one table.

A caller may raise a limit; the file being read never can.
"""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1 << 10
_MIB = 1 << 20
_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The largest sizes that are accepted from a foreign file.

    The defaults are several times what the largest published model needs, so a refusal means a
    broken or hostile file, not a big one.
    """

    # JSON: options.json, config.json, indexes, manifests.
    json_bytes: int = 4 * _MIB
    json_depth: int = 32
    json_int: int = 1 << 53  # beyond it a JSON number is no longer exact in other readers

    # Text.
    vocabulary_bytes: int = 256 * _MIB
    vocabulary_lines: int = 20_000_000
    vocabulary_line_bytes: int = 64 * _KIB
    text_line_bytes: int = 64 * _MIB

    # Zip and tar.
    archive_ratio: int = 200
    # Small archives of zeros pack thousandfold and harm nobody: the ratio counts from here on.
    archive_ratio_from: int = 16 * _MIB

    # HDF5.
    hdf5_objects: int = 10_000
    hdf5_depth: int = 8

    # Index of a TensorFlow checkpoint; the published ones have 5 kB.
    table_bytes: int = 16 * _MIB

    # Pickles of tensors: what describes the tensors, without their numbers.
    pickle_bytes: int = 32 * _MIB

    # Model shapes.
    lstm_units: int = 65_536
    projection: int = 16_384
    layers: int = 64
    filters: int = 64
    channels: int = 65_536
    min_chars: int = 3
    max_chars: int = 1000
    character_rows: int = 1_200_000
    softmax_words: int = 20_000_000
    model_bytes: int = 32 * _GIB


LIMITS = Limits()

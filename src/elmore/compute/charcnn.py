"""Convolutions over the characters of words, followed by the maximum over all places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.compute.matrix import Array
from elmore.compute.native import aligned, native, pointer
from elmore.errors import NativeError

Ids = NDArray[np.int32] | NDArray[np.int64]

# Words whose windows are computed at one go: the windows of the widest published filter (1,024
# channels, about 20 places) then stay near 16 MB and in the caches.
_WORDS_AT_ONCE = 256
# Fewer words than these share a group whatever their lengths: the calls of a further group would
# cost more than the columns that it saves.
_FEW_WORDS = 16
# Filters that native/charcnn.h computes together.
_FILTERS = 16


def constant_tail(ids: Ids) -> NDArray[np.int64]:
    """The number of columns before the constant end of each row, (n_words, chars) to (n_words,).

    Padding is a run of equal ids at the end of a word, whatever the alphabet's padding id is.
    """
    places = np.arange(1, ids.shape[1] + 1)
    tails: NDArray[np.int64] = ((ids != ids[:, -1:]) * places).max(axis=1)
    return tails


def groups_by_length(ids: Ids, width: int) -> list[tuple[NDArray[np.int64], int]]:
    """Group words that need (about) equally many columns.

    Windows that lie completely in the constant end of a word are all equal, so one of them is
    enough: `tail + width` columns hold every different window of that width or less, never more
    columns than there are. Fewer would lose the all-padding window, which takes part in the
    maximum.

    Args:
        ids: character ids, (n_words, chars).
        width: the widest filter.

    Returns:
        (positions of the words, columns to keep) of each group.
    """
    columns = np.minimum(constant_tail(ids) + width, ids.shape[1])
    order = np.argsort(columns, kind="stable")
    sizes = columns[order].tolist()
    groups, start = [], 0
    for end in range(1, len(sizes) + 1):
        size = end - start
        longer = end < len(sizes) and sizes[end] != sizes[end - 1]
        if end == len(sizes) or size == _WORDS_AT_ONCE or (longer and size >= _FEW_WORDS):
            groups.append((order[start:end], sizes[end - 1]))
            start = end
    return groups


def character_tables(characters: Array, filters: Sequence[Array]) -> list[Array]:
    """Multiply embeddings with filters ahead of time.

    Both are linear, so a window's value is a sum of `width` rows of such a table (16 times fewer
    operations than a convolution over 16-dimensional characters).

    Args:
        characters: (n_characters, char_dim).
        filters: weight of each filter, (count, char_dim, width).

    Returns:
        for each filter (width * n_characters, count); row k * n_characters + c belongs to
        character c at the window's place k.
    """
    tables = []
    for weight in filters:
        count, _, width = weight.shape
        table = np.zeros((width, len(characters), count), np.float32)
        # One dimension after the other: what BLAS sums depends on its number of threads.
        for column, part in zip(characters.T, weight.transpose(1, 2, 0), strict=True):
            table += column[:, None] * part[:, None]
        tables.append(table.reshape(-1, count))
    return tables


class FilterTables:
    """All filters of a token encoder as tables, for weights that do not change.

    Args:
        characters: (n_characters, char_dim).
        filters: weight of each filter, (count, char_dim, width).
        biases: (count,) of each filter.
    """

    def __init__(
        self, characters: Array, filters: Sequence[Array], biases: Sequence[Array]
    ) -> None:
        self._n_characters = len(characters)
        self._widths = [weight.shape[2] for weight in filters]
        self._biases = [np.ascontiguousarray(bias) for bias in biases]
        self._tables = character_tables(characters, filters)
        self._module: Any = native().module
        if self._module is not None:
            self._tables = [_blocks(table) for table in self._tables]

    def largest(self, ids: NDArray[np.int32]) -> Array:
        """The largest response of each filter, before the activation, (n_words, n_filters).

        `ids` are character ids from 1, (n_words, chars).
        """
        result = aligned(len(ids), sum(map(len, self._biases)))
        if not len(ids):
            return result
        if self._module is None:
            self._reference(ids, result)
            return result
        n_words, chars = ids.shape
        ids = np.ascontiguousarray(ids, np.int32)
        # C does not check ids: a wrong one would read outside the tables.
        if ids.min() < 1 or ids.max() > self._n_characters or chars < max(self._widths):
            raise NativeError(
                f"character ids {ids.min()}..{ids.max()} in {chars} columns do not fit the tables "
                f"of {self._n_characters} characters; report this, or set ELMORE_NATIVE=0"
            )
        tails = constant_tail(ids)
        at, first = pointer(result, *result.shape), 0
        for width, table, bias in zip(self._widths, self._tables, self._biases, strict=True):
            self._module.charcnn(
                at + first * 4,
                ids.ctypes.data,
                tails.ctypes.data,
                pointer(table, *table.shape),
                pointer(bias, len(bias)),
                n_words,
                chars,
                self._n_characters,
                width,
                len(bias),
                result.shape[1],
            )
            first += len(bias)
        return result

    def _reference(self, ids: NDArray[np.int32], result: Array) -> None:
        """Sum table rows in numpy; the definition of the kernel."""
        for members, columns in groups_by_length(ids, max(self._widths)):
            group = ids[members, :columns].astype(np.int64) - 1
            first = 0
            for width, table, bias in zip(self._widths, self._tables, self._biases, strict=True):
                places = columns - width + 1
                values = table[group[:, :places]]  # (words, places, count)
                for k in range(1, width):
                    values += table[group[:, k : k + places] + k * self._n_characters]
                # After the maximum, because the bias is the same at every place.
                result[members, first : first + len(bias)] = values.max(axis=1) + bias
                first += len(bias)


def _blocks(table: Array) -> Array:
    """Put 16 filters side by side: (rows, count) to (count up to 16 / 16, rows, 16)."""
    rows, count = table.shape
    padded = np.pad(table, ((0, 0), (0, -count % _FILTERS)))
    blocks = aligned(padded.shape[1] // _FILTERS, rows, _FILTERS)
    blocks[...] = padded.reshape(rows, -1, _FILTERS).transpose(1, 0, 2)
    return blocks

"""Convolutions over the characters of words, followed by the maximum over all places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmore.errors import NativeError
from elmore.kernels._check import pointer
from elmore.kernels._load import native

__all__ = ["FilterTables", "character_tables", "constant_tail", "convolve", "convolve_by_tables"]

# Words whose windows are computed at one go: the windows of the widest published filter (1,024
# channels, some 20 places) then stay near 16 MB and in the caches.
_WORDS_AT_ONCE = 256
# Fewer words than these share a group whatever their lengths: the calls of a further group would
# cost more than the columns that it saves.
_FEW_WORDS = 16
# Filters that native/charcnn.h computes together.
_FILTERS = 16


def constant_tail(ids: Tensor) -> Tensor:
    """Find where the constant end of each row begins.

    Padding is a run of equal ids at the end of a word, whatever the alphabet's padding id is.

    Args:
        ids: character ids, (n_words, chars).

    Returns:
        number of columns before the run of the last column's id, (n_words,).
    """
    differs = ids != ids[:, -1:]
    places = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    return (differs * places).amax(dim=1)


def groups_by_length(ids: Tensor, width: int) -> list[tuple[Tensor, int]]:
    """Group words that need (about) equally many columns.

    Windows that lie wholly in the constant end of a word are all equal, so one of them is enough:
    `tail + width` columns hold every different window of that width or less, never more columns
    than there are. Fewer would lose the all-padding window, which takes part in the maximum.

    Args:
        ids: character ids, (n_words, chars).
        width: the widest filter.

    Returns:
        (positions of the words, columns to keep) of each group.
    """
    columns = (constant_tail(ids) + width).clamp(max=ids.shape[1])
    order = torch.argsort(columns, stable=True)
    sizes = columns[order].tolist()
    groups, start = [], 0
    for end in range(1, len(sizes) + 1):
        size = end - start
        longer = end < len(sizes) and sizes[end] != sizes[end - 1]
        if end == len(sizes) or size == _WORDS_AT_ONCE or (longer and size >= _FEW_WORDS):
            groups.append((order[start:end], sizes[end - 1]))
            start = end
    return groups


def character_tables(characters: Tensor, filters: Sequence[Tensor]) -> list[Tensor]:
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
    return [
        torch.einsum("cd,ndk->kcn", characters, weight).reshape(-1, weight.shape[0])
        for weight in filters
    ]


def convolve_by_tables(
    ids: Tensor, tables: Sequence[Tensor], biases: Sequence[Tensor], n_characters: int
) -> Tensor:
    """Give the largest response of each filter by summing table rows; no gradients.

    Args:
        ids: character ids from 1, (n_words, chars).
        tables: as `character_tables` makes them.
        biases: (count,) of each filter.
        n_characters: rows of the character table.

    Returns:
        (n_words, n_filters), before the activation.
    """
    result = tables[0].new_empty(ids.shape[0], sum(table.shape[1] for table in tables))
    for members, responses in _responses(ids, tables, n_characters):
        result[members] = torch.cat([values.amax(dim=1) for values in responses], dim=1)
    return result.add_(torch.cat(list(biases)))


def _responses(
    ids: Tensor, tables: Sequence[Tensor], n_characters: int
) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Give groups of words, and for each filter the response at every place, (n, places, count)."""
    widths = [table.shape[0] // n_characters for table in tables]
    for members, columns in groups_by_length(ids, max(widths)):
        group = ids.index_select(0, members)[:, :columns] - 1
        responses = []
        for width, table in zip(widths, tables, strict=True):
            # (words, places, width): rows of the table whose sum is the window's value
            rows = group.unfold(1, width, 1) + torch.arange(
                0, width * n_characters, n_characters, device=ids.device
            )
            values = torch.nn.functional.embedding_bag(rows.reshape(-1, width), table, mode="sum")
            responses.append(values.view(len(members), -1, table.shape[1]))
        yield members, responses


class FilterTables:
    """All filters of a token encoder as tables, for weights that do not change.

    Args:
        characters: (n_characters, char_dim).
        filters: weight of each filter, (count, char_dim, width).
        biases: (count,) of each filter.
    """

    def __init__(
        self, characters: Tensor, filters: Sequence[Tensor], biases: Sequence[Tensor]
    ) -> None:
        self._n_characters = len(characters)
        self._widths = [weight.shape[2] for weight in filters]
        self._biases = [bias.contiguous() for bias in biases]
        self._tables = character_tables(characters, filters)
        self._module = native().module
        if self._module is not None:
            self._tables = [_blocks(table) for table in self._tables]

    def largest(self, ids: NDArray[np.int32]) -> Tensor:
        """Give the largest response of each filter, before the activation.

        Args:
            ids: character ids from 1, (n_words, chars).

        Returns:
            (n_words, n_filters).
        """
        if self._module is None:
            words = torch.from_numpy(ids).long()
            return convolve_by_tables(words, self._tables, self._biases, self._n_characters)
        n_words, chars = ids.shape
        result = torch.empty(n_words, sum(map(len, self._biases)), dtype=torch.float32)
        if not n_words:
            return result
        ids = np.ascontiguousarray(ids, np.int32)
        if ids.min() < 1 or ids.max() > self._n_characters or chars < max(self._widths):
            raise NativeError(
                f"character ids {ids.min()}..{ids.max()} in {chars} columns do not fit the tables "
                f"of {self._n_characters} characters; report this, or set ELMORE_NATIVE=0"
            )
        places = np.arange(1, chars + 1)
        tails = ((ids != ids[:, -1:]) * places).max(axis=1)  # as `constant_tail`
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


def _blocks(table: Tensor) -> Tensor:
    """Put 16 filters side by side: (rows, count) to (count up to 16 / 16, rows, 16)."""
    rows, count = table.shape
    padded = torch.nn.functional.pad(table, (0, -count % _FILTERS))
    return padded.view(rows, -1, _FILTERS).transpose(0, 1).contiguous()


class _Convolution(torch.autograd.Function):
    """Table sums forward; backward, only the window that won in each filter has a gradient."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, characters: Tensor, *weights: Tensor) -> Tensor:
        filters, biases = weights[::2], weights[1::2]
        tables = character_tables(characters, filters)
        shape = (ids.shape[0], sum(table.shape[1] for table in tables))
        result = characters.new_empty(shape)
        starts = ids.new_empty(shape)
        for members, responses in _responses(ids, tables, len(characters)):
            best = [values.max(dim=1) for values in responses]
            result[members] = torch.cat([found.values for found in best], dim=1)
            starts[members] = torch.cat([found.indices for found in best], dim=1)
        ctx.save_for_backward(ids, characters, starts, *filters)
        return result.add_(torch.cat(biases))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_result: Tensor) -> tuple[Tensor | None, ...]:
        ids, characters, starts, *filters = ctx.saved_tensors
        counts = [weight.shape[0] for weight in filters]
        d_characters = torch.zeros_like(characters)
        gradients: list[Tensor] = []
        places = zip(
            filters, torch.split(d_result, counts, 1), torch.split(starts, counts, 1), strict=True
        )
        for weight, d_values, start in places:
            count, char_dim, width = weight.shape
            d_weight = weight.new_empty(width, char_dim, count)
            for k in range(width):
                # Every winning window adds its gradient to the row of its k-th character.
                d_table = weight.new_zeros(len(characters), count)
                d_table.scatter_add_(0, ids.gather(1, start + k) - 1, d_values)
                torch.mm(characters.t(), d_table, out=d_weight[k])
                d_characters.addmm_(d_table, weight[:, :, k])
            gradients += [d_weight.permute(2, 1, 0).contiguous(), d_values.sum(dim=0)]
        return None, d_characters, *gradients


def convolve(
    ids: Tensor, characters: Tensor, filters: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """Give the largest response of each filter; differentiable.

    Args:
        ids: character ids from 1, (n_words, chars).
        characters: (n_characters, char_dim).
        filters: weight of each filter, (count, char_dim, width).
        biases: (count,) of each filter.

    Returns:
        (n_words, n_filters), before the activation.
    """
    pairs = [weight for pair in zip(filters, biases, strict=True) for weight in pair]
    # Sums of a few table rows: nothing for bfloat16 to win, and the winner must not be a tie.
    with torch.autocast(characters.device.type, enabled=False):
        result: Tensor = _Convolution.apply(ids, characters, *pairs)  # type: ignore[no-untyped-call]  # torch leaves it so
    return result

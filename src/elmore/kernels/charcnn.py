"""Convolutions over the characters of words, followed by the maximum over all places."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["character_tables", "constant_tail", "convolve", "convolve_by_tables"]

# Words whose windows are computed at one go: the windows of the widest published filter (1,024
# channels, some 20 places) then stay near 16 MB and in the caches.
_WORDS_AT_ONCE = 256


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
    """Group words that need equally many columns.

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
        if end == len(sizes) or sizes[end] != sizes[start] or end - start == _WORDS_AT_ONCE:
            groups.append((order[start:end], sizes[start]))
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
    widths = [table.shape[0] // n_characters for table in tables]
    result = tables[0].new_empty(ids.shape[0], sum(table.shape[1] for table in tables))
    for members, columns in groups_by_length(ids, max(widths)):
        group = ids.index_select(0, members)[:, :columns] - 1
        pieces = []
        for width, table, bias in zip(widths, tables, biases, strict=True):
            # (words, places, width): rows of the table whose sum is the window's value
            rows = group.unfold(1, width, 1) + torch.arange(
                0, width * n_characters, n_characters, device=ids.device
            )
            values = torch.nn.functional.embedding_bag(rows.reshape(-1, width), table, mode="sum")
            pieces.append(values.view(len(members), -1, len(bias)).amax(dim=1) + bias)
        result[members] = torch.cat(pieces, dim=1)
    return result


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
    char_dim = characters.shape[1]
    groups = groups_by_length(ids, max(weight.shape[2] for weight in filters))
    results = []
    for members, columns in groups:
        embedded = torch.nn.functional.embedding(
            ids.index_select(0, members)[:, :columns] - 1, characters
        )
        pieces = []
        for weight, bias in zip(filters, biases, strict=True):
            # (words, places, char_dim, width) as one matrix product over all windows
            windows = embedded.unfold(1, weight.shape[2], 1)
            flat = windows.reshape(-1, char_dim * weight.shape[2])
            values = flat @ weight.reshape(weight.shape[0], -1).t()
            pieces.append(values.view(len(members), -1, len(bias)).max(dim=1).values + bias)
        results.append(torch.cat(pieces, dim=1))
    order = torch.cat([members for members, _ in groups])
    return torch.cat(results).index_select(0, torch.argsort(order))

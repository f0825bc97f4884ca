"""The character convolutions with gradients, or on a GPU; `kernels.charcnn` is for inference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmore.kernels.charcnn import groups_by_length

__all__ = ["convolve"]


def _character_tables(characters: Tensor, filters: Sequence[Tensor]) -> list[Tensor]:
    """As `kernels.charcnn.character_tables`."""
    return [
        torch.einsum("cd,ndk->kcn", characters, weight).reshape(-1, weight.shape[0])
        for weight in filters
    ]


def _responses(
    ids: Tensor, tables: Sequence[Tensor], n_characters: int
) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Give groups of words, and for each filter the response at every place, (n, places, count)."""
    widths = [table.shape[0] // n_characters for table in tables]
    for chosen, columns in groups_by_length(ids.cpu().numpy(), max(widths)):
        members = torch.from_numpy(chosen).to(ids.device)
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


class _Convolution(torch.autograd.Function):
    """Table sums forward; backward, only the window that won in each filter has a gradient."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, characters: Tensor, *weights: Tensor) -> Tensor:
        filters, biases = weights[::2], weights[1::2]
        tables = _character_tables(characters, filters)
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
    """The largest response of each filter; differentiable.

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

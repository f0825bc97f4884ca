"""Several processes that train one model together (torchrun, gloo or nccl)."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from elmore.errors import ConfigError
from elmore.nn.softmax import RowGradient

__all__ = ["Group", "join_group"]


class Group:
    """The processes of a training; alone, every method is free.

    Attributes:
        rank: number of this process.
        world: number of processes.
    """

    def __init__(self, rank: int = 0, world: int = 1, *, ours: bool = False) -> None:
        self.rank, self.world, self._ours = rank, world, ours

    @property
    def main(self) -> bool:
        """Whether this process writes files."""
        return self.rank == 0

    def sum_dense(self, gradients: Sequence[Tensor]) -> None:
        """Add up dense gradients over all processes, in place, in one message."""
        if self.world == 1:
            return
        # One message for all: each one costs a round trip, however small it is.
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        torch.distributed.all_reduce(flat)
        start = 0
        for gradient in gradients:
            size = gradient.numel()
            gradient.copy_(flat[start : start + size].view(gradient.shape))
            start += size

    def gather_rows(self, rows: RowGradient) -> list[RowGradient]:
        """Exchange softmax rows: only touched rows travel. Every process gets the same list."""
        if self.world == 1:
            return [rows]
        if rows.ids is None:
            self.sum_dense([rows.weight, rows.bias])
            return [rows]
        count = torch.tensor([len(rows.ids)])
        counts = [torch.zeros_like(count) for _ in range(self.world)]
        torch.distributed.all_gather(counts, count)
        largest = int(torch.stack(counts).max())
        # Messages must have equal sizes: pad, then cut.
        # In float64, which holds ids beyond 2**24 exactly, so that ids and values travel together.
        packed = torch.zeros(largest, rows.weight.shape[1] + 2, dtype=torch.float64)
        packed[: len(rows.ids), 0] = rows.ids.double()
        packed[: len(rows.ids), 1] = rows.bias.double()
        packed[: len(rows.ids), 2:] = rows.weight.double()
        everyone = [torch.empty_like(packed) for _ in range(self.world)]
        torch.distributed.all_gather(everyone, packed)
        return [
            RowGradient(part[:n, 0].long(), part[:n, 2:].float(), part[:n, 1].float())
            for part, n in zip(everyone, [int(c) for c in counts], strict=True)
        ]

    def sum_numbers(self, numbers: Sequence[float]) -> list[float]:
        """Add up numbers over all processes."""
        if self.world == 1:
            return list(numbers)
        tensor = torch.tensor(list(numbers), dtype=torch.float64)
        torch.distributed.all_reduce(tensor)
        return [float(value) for value in tensor]

    def any(self, asked: bool) -> bool:
        """Whether any process asks."""
        return self.sum_numbers([float(asked)])[0] > 0

    def gather_tensors(self, tensor: Tensor) -> list[Tensor]:
        """Collect a tensor of equal shape from every process."""
        if self.world == 1:
            return [tensor]
        everyone = [torch.empty_like(tensor) for _ in range(self.world)]
        torch.distributed.all_gather(everyone, tensor.contiguous())
        return everyone

    def leave(self) -> None:
        """Wait for all and end what `join_group` began."""
        if self._ours:
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()
            self._ours = False

    def barrier(self) -> None:
        """Wait for all."""
        if self.world > 1:
            torch.distributed.barrier()


def join_group(device: str = "cpu") -> Group:
    """Join the processes that torchrun started; alone without it."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Group()
    if "RANK" not in os.environ:
        raise ConfigError("WORLD_SIZE is set but RANK is not; start with torchrun")
    # A caller who made the group keeps it; we end only what we began.
    ours = not torch.distributed.is_initialized()
    if ours:
        torch.distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    return Group(torch.distributed.get_rank(), world, ours=ours)

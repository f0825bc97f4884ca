"""Several processes that train one model together: torchrun, with gloo, and nccl between GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from elmore.embedding.engine import find_device
from elmore.errors import ConfigError, ElmoreError
from elmore.nn.softmax import RowGradient


class Group:
    """The processes of a training; alone, every method is free.

    Tensors travel from where they are, between GPUs by nccl; counts and sums from the CPU, by gloo.

    Attributes:
        rank: number of this process.
        world: number of processes.
        device: where this process computes.
    """

    def __init__(
        self, rank: int = 0, world: int = 1, *, device: str = "cpu", ours: bool = False
    ) -> None:
        self.rank, self.world, self.device, self._ours = rank, world, device, ours

    @property
    def main(self) -> bool:
        """Whether this process writes files."""
        return self.rank == 0

    def sum_dense(self, gradients: Sequence[Tensor]) -> None:
        """Add up dense gradients over all processes, in place, in one message."""
        # While all dense weights are frozen there is nothing to send.
        if self.world == 1 or not gradients:
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
        # Processes touch different numbers of rows, so they tell each other how many come.
        count = torch.tensor([len(rows.ids)])
        counts = [torch.zeros_like(count) for _ in range(self.world)]
        torch.distributed.all_gather(counts, count)
        largest = int(torch.stack(counts).max())
        # Messages must have equal sizes: pad, then cut.
        # In float64, which holds ids beyond 2**24 exactly, so that ids and values travel together.
        packed = torch.zeros(
            largest, rows.weight.shape[1] + 2, dtype=torch.float64, device=rows.weight.device
        )
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
        # In double precision: counts of tokens go beyond the integers that float32 holds.
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
            # A process that left early would break the last messages of the others.
            self.barrier()
            torch.distributed.destroy_process_group()
            self._ours = False

    def first(self, job: Callable[[], object]) -> None:
        """Run a job in the main process while the others wait.

        Raises:
            ElmoreError: in every process, if the job failed in the main one.
        """
        error = None
        if self.main:
            try:
                job()
            except Exception as problem:  # raised below, when the others know
                error = problem
        if not self.any(error is not None):
            return
        self.leave()  # together: one that ends alone breaks the connection of the others
        if error is not None:
            raise error
        raise ElmoreError("process 0 failed; see its message")

    def barrier(self) -> None:
        """Wait for all."""
        self.sum_numbers([0])  # nccl has a barrier of its own, which waits for the GPU too


def join_group(device: str = "cpu") -> Group:
    """Join the processes that torchrun started; alone without it.

    Args:
        device: where to compute. With several processes "cuda" means the GPU of each: torchrun
            numbers the processes of a machine from 0 (LOCAL_RANK).

    Raises:
        ConfigError: the device cannot be used, or not by several processes.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Group(device=trainable_device(device))
    if "RANK" not in os.environ:
        raise ConfigError("WORLD_SIZE is set but RANK is not; start with torchrun")
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"device={device!r} for several processes; use 'cuda', one GPU for each")
    kind = device
    if kind == "cuda":
        number, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if number >= there:
            raise ConfigError(
                f"process {number} of this machine has no GPU, there are {there}; start as many "
                "processes as GPUs"
            )
        device = trainable_device(f"cuda:{number}")
        # nccl would use the first GPU in every process.
        torch.cuda.set_device(device)
    # A caller who made the group keeps it; we end only what we began.
    ours = not torch.distributed.is_initialized()
    if ours:
        # Gradients are on the GPU; counts, sums and questions are on the CPU.
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo")
    served = torch.distributed.get_backend_config()
    if missing := [one for one in {"cpu", kind} if f"{one}:" not in served]:
        raise ConfigError(
            f"the process group ({served}) does not serve tensors on {missing[0]}; create it with "
            "init_process_group('cpu:gloo,cuda:nccl')"
        )
    return Group(torch.distributed.get_rank(), world, device=device, ours=ours)


def trainable_device(device: str) -> str:
    """The full name of a device that can train; a `ConfigError` for any other."""
    if device.startswith("mps"):  # the losses need float64, which it does not have
        raise ConfigError(f"device={device!r} embeds but cannot train; use cpu or cuda")
    return find_device(device)

"""Worker threads whose torch keeps to its share of the processors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from elmore.compute.workers import ThreadLimits, Workers

__all__ = ["TorchLimits", "one_thread", "torch_workers"]


class TorchLimits(ThreadLimits):
    """Hold torch's own threads to what a worker may use."""

    def enter(self) -> None:
        # The first question in a thread takes over the count of the process; asked later, it would
        # undo what is set then.
        torch.get_num_threads()
        # This thread's own flag; some processors are many times slower on denormal numbers.
        torch.set_flush_denormal(True)

    def set(self, threads: int) -> None:
        torch.set_num_threads(threads)

    @contextmanager
    def kept(self) -> Iterator[None]:
        # The count is each thread's own, but threads that others start later would inherit what
        # our workers set: put back what was there.
        before = torch.get_num_threads()
        try:
            yield
        finally:
            torch.set_num_threads(before)


def torch_workers(threads: int | None = None, count: int | None = None) -> Workers:
    """Make workers for jobs that call torch; arguments as for `Workers`."""
    return Workers(threads, count, TorchLimits())


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread here: the heavy work is on the workers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

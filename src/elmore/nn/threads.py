"""Worker threads whose torch keeps to its share of the processors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import torch

from elmore.compute.workers import Workers

Result = TypeVar("Result")


class TorchWorkers(Workers):
    """Workers for jobs that call torch, whose own threads keep to the processors too."""

    def run(
        self,
        jobs: Sequence[Callable[[], Result]],
        done: Callable[[Result], object] = lambda result: None,
    ) -> list[Result]:
        """As `Workers.run`; torch divides the processors among the jobs that run together."""
        inner = max(1, self.threads // max(1, min(len(jobs), self.count)))
        # The count is each thread's own, but threads that others start later would inherit what
        # our workers set: put back what was there.
        before = torch.get_num_threads()
        try:
            return super().run([partial(_limited, job, inner) for job in jobs], done)
        finally:
            torch.set_num_threads(before)


def _limited(job: Callable[[], Result], threads: int) -> Result:
    # The first question in a thread takes over the count of the process; asked later, it would
    # undo what is set here.
    torch.get_num_threads()
    torch.set_num_threads(threads)
    # This thread's own flag; some processors are many times slower on denormal numbers.
    torch.set_flush_denormal(True)
    return job()


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread here: the heavy work is on the workers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

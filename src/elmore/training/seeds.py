"""Random generators derived from the one seed by name, so that nothing needs to be remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *names: str | int) -> int:
    """A number of 63 bits that depends on the seed and on every name."""
    # A hash, so that every purpose has a stream of its own, whatever the others draw.
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_generator(seed: int, *names: str | int) -> np.random.Generator:
    """Make a numpy generator for one purpose."""
    return np.random.Generator(np.random.PCG64(derive(seed, *names)))


def torch_generator(seed: int, *names: str | int) -> torch.Generator:
    """Make a torch generator for one purpose, on the CPU."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *names))


@contextmanager
def seeded(seed: int, *names: str | int) -> Iterator[None]:
    """Seed torch's default generator for one purpose, which dropout reads, and give it back."""
    import torch

    # Forked, so that the caller's own random numbers are not disturbed.
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(derive(seed, *names))  # noqa: TID251 (inside fork_rng)
        yield

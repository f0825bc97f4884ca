"""Where a model computes, and in which precision it can do so there."""

from __future__ import annotations

from elmore.base.optional import require
from elmore.config import ComputePrecision
from elmore.errors import ConfigError
from elmore.formats.checkpoint import Checkpoint

__all__ = ["choose_precision", "find_device"]

# What torch calls the kinds of devices that people have.
_DEVICES = ("cpu", "cuda", "mps", "xpu")


def find_device(name: str) -> str:
    """Check that a device can be used, or say why not; "cpu" needs no torch.

    Returns:
        its full name.
    """
    if name == "cpu":
        return name
    if name.partition(":")[0] not in _DEVICES:
        raise ConfigError(f"device={name!r} is unknown; use cpu, cuda, cuda:0 or mps")
    torch = require("torch", "torch", f"device={name!r}")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device={name!r} is unknown; use cpu, cuda, cuda:0 or mps") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={name!r} but torch finds no CUDA here; use device='cpu'")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, NotImplementedError, AssertionError):
        raise ConfigError(f"device={name!r} cannot be used here; use device='cpu'") from None
    return str(device)


def choose_precision(
    wanted: ComputePrecision | None, checkpoint: Checkpoint, device: str
) -> ComputePrecision:
    """The precision to compute in: the one that is asked for, or that of the model's files."""
    joint = checkpoint.config.lstm.mixed  # both directions are computed together
    if wanted is None:
        return checkpoint.precision if device == "cpu" and not joint else "float32"
    if wanted == "int8" and device != "cpu":
        raise ConfigError(f"precision='int8' needs device='cpu'; use float16 on {device}")
    if wanted == "bfloat16" and device == "cpu":
        raise ConfigError("precision='bfloat16' needs a GPU; use float16 on the CPU")
    if wanted != "float32" and joint:
        raise ConfigError(
            f"precision={wanted!r} is not for an LSTM that mixes its directions; use 'float32'"
        )
    return wanted

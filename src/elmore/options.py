"""What can be asked of a model, as values that are checked once, where they are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

__all__ = ["LayerChoice", "Pooling", "StoredType"]

# "mean", "top", the number of a layer, or one weight per layer.
LayerChoice = Literal["mean", "top"] | int | Sequence[float]
Pooling = Literal["mean", "max", "first", "last"]
StoredType = Literal["float32", "float16"]

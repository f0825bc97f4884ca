"""What can be asked of a model, as values that are checked once, where they are made.

`Compute` says how a model computes, `Output` what comes out. Everything between a user's keywords
and the engine passes these on: `Elmo`, bulk jobs, the columns of Ray and Spark, the command line.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Required, TypedDict, cast, get_args

from elmore.base.messages import ProgressOption
from elmore.config import ComputePrecision
from elmore.errors import ConfigError

# "mean", "top", the number of a layer, or one weight per layer.
LayerChoice = Literal["mean", "top"] | int | Sequence[float]
Pooling = Literal["mean", "max", "first", "last", "sif"]
StoredType = Literal["float32", "float16"]
Start = Literal["zeros", "warm"]
# Larger batches gain little (128 sentences of ordinary length keep the LSTMs busy), and memory
# stays small.
BATCH_TOKENS = 4096


class ComputeOptions(TypedDict, total=False):
    """The attributes of `Compute` as keywords."""

    device: str
    precision: ComputePrecision | None
    threads: int | None
    start: Start
    batch_tokens: int | None
    tokenizer: str | Callable[[str], Any] | None


class OutputOptions(TypedDict, total=False):
    """The attributes of `Output` as keywords."""

    layers: LayerChoice | Literal["all"]
    pool: Pooling | None
    dtype: StoredType


class StreamOptions(TypedDict, total=False):
    """How sentences are computed together, and who is told: keywords of `Elmo`'s methods."""

    batch_tokens: int | None
    progress: ProgressOption


class TextOptions(StreamOptions, total=False):
    """Keywords of methods that are given texts."""

    tokenized: Literal[False]


class TokenOptions(StreamOptions, total=False):
    """Keywords of methods that are given tokens."""

    tokenized: Required[Literal[True]]


@dataclass(frozen=True, kw_only=True)
class Fetch:
    """How a model that is not on this machine is downloaded; see the arguments of `Elmo.load`."""

    progress: ProgressOption = None
    token: str | None = None
    revision: str | None = None
    cache_dir: str | Path | None = None


@dataclass(frozen=True, kw_only=True)
class Compute:
    """How a model computes.

    Attributes:
        device: where to compute: "cpu", "cuda", "cuda:1", "mps" (Apple), ...
        precision: how to compute: "float32", "float16" (weights stored in half the bytes) or
            "int8" (a quarter); None for the one the model was saved in, but float32 instead of
            int8 without the C extension. On a GPU "float32", which is also the default there,
            "float16" or "bfloat16".
        threads: processors to use; None for all.
        start: the state before each sentence: "zeros", or "warm", the state after a short text
            that ships with elmore.
        batch_tokens: token budget of a batch, where a method is given none; None for 4,096.
        tokenizer: how raw text is split: "ptb", "billion-word", "unicode", "spaces",
            "module:function", or a function that takes a text and returns its tokens or
            (token, start, end); None for the convention of the model (`elmore.text.segmenter`).

    Raises:
        ConfigError: a bad value. Whether the device exists is checked when a model is loaded,
            because only torch knows.
    """

    device: str = "cpu"
    precision: ComputePrecision | None = None
    threads: int | None = None
    start: Start = "zeros"
    batch_tokens: int | None = None
    tokenizer: str | Callable[[str], Any] | None = None

    def __post_init__(self) -> None:
        if self.precision is not None and self.precision not in get_args(ComputePrecision):
            names = ", ".join(get_args(ComputePrecision))
            raise ConfigError(f"precision={self.precision!r}; use one of {names}")
        if self.start not in get_args(Start):
            raise ConfigError(f'start={self.start!r}; use "zeros" or "warm"')
        check_counts(self, "threads", "batch_tokens")

    def options(self) -> ComputeOptions:
        """These attributes alone as keywords, without those of a subclass."""
        names = (field.name for field in fields(Compute))
        return cast(ComputeOptions, {name: getattr(self, name) for name in names})


@dataclass(frozen=True, kw_only=True)
class Output:
    """What comes out for each sentence.

    Attributes:
        layers: "mean", "top", the number of a layer, one weight per layer, or "all".
        pool: one vector per sentence, made by this pooling; None for one vector per token.
        dtype: how numbers are stored.

    Raises:
        ConfigError: a bad value. Whether a model has these layers is checked by
            `embedding.results.value_shape`.
    """

    layers: LayerChoice | Literal["all"] = "mean"
    pool: Pooling | None = None
    dtype: StoredType = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in get_args(StoredType):
            raise ConfigError(f"dtype={self.dtype!r}; use {' or '.join(get_args(StoredType))}")
        if self.pool is not None and self.pool not in get_args(Pooling):
            raise ConfigError(f"pool={self.pool!r}; use one of {', '.join(get_args(Pooling))}")

    @property
    def all_layers(self) -> bool:
        """Whether every layer comes out, not a mix of them."""
        # Weights may be a numpy array, which == compares element by element.
        return isinstance(self.layers, str) and self.layers == "all"


def check_counts(options: object, *names: str) -> None:
    """Refuse attributes that are not numbers from 1 on; None is allowed."""
    for name in names:
        value = getattr(options, name)
        if value is None:
            continue
        # True is an int in Python, and would mean one thread.
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise ConfigError(f"{name}={value!r} is not a whole number; use 1 or more")
        if value < 1:
            raise ConfigError(f"{name}={value}; use 1 or more")

"""Load a model or tagger once per process, by its name, for pipelines that are pickled and sent."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from elmore.embedding.load import ModelPath, absolute, read_checkpoint
from elmore.errors import ConfigError
from elmore.options import Compute, ComputeOptions
from elmore.published.catalog import bundled_model

if TYPE_CHECKING:
    from elmore.elmo import Elmo
    from elmore.tasks.predictions import TagPredictor

# A pipeline uses one model, a comparison two or three; the largest published one takes 0.4 GB.
_MAX_MODELS = 3
_lock = threading.Lock()


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_new_lock)  # the thread that held it is not there


def load_once(model: ModelPath | None = None, **options: Unpack[ComputeOptions]) -> Elmo:
    """Load a model, or return the one that was loaded before; options are those of `Elmo.load`.

    The three models used last are kept. A model whose files have changed is loaded again, and so is
    every model in a forked process.

    Example:
        >>> load_once("my-model") is load_once("my-model")
        True
    """
    if not isinstance(model, str | Path | tuple | None):
        raise ConfigError(
            f"model is a {type(model).__name__}; name it by a path, so that the pipeline can be "
            "saved and sent to other processes"
        )
    with _lock:
        name = absolute(bundled_model() if model is None else model)
        return _model(name, Compute(**options), _state(name))


def tagger_once(name: str, threads: int | None) -> TagPredictor[Any]:
    """A trained tagger, kept like a model."""
    with _lock:
        return _tagger(name, threads, _state(name))


@lru_cache(_MAX_MODELS)
def _model(name: str | tuple[str, ...], compute: Compute, _: Hashable) -> Elmo:
    from elmore.elmo import Elmo

    return Elmo(read_checkpoint(name), **compute.options())


@lru_cache(_MAX_MODELS)
def _tagger(name: str, threads: int | None, _: Hashable) -> TagPredictor[Any]:
    from elmore.tasks.own.light import tagger

    return tagger(name, threads=threads)


def _state(name: str | tuple[str, ...]) -> Hashable:
    """What is equal for the same files in the same state, in one process.

    A forked process has its parent's models, perhaps with locks that nobody will release.
    """
    files: list[Path] = []
    for path in map(Path, [name] if isinstance(name, str) else name):
        files += sorted(path.iterdir()) if path.is_dir() else [path] if path.exists() else []
    states = ((str(file), file.stat()) for file in files)
    return os.getpid(), *((f, s.st_size, s.st_mtime_ns, s.st_ino) for f, s in states)

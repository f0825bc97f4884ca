"""Load a model or tagger once per process, by its name, for pipelines that are pickled and sent."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from elmore.embedding.load import ModelPath, read_checkpoint
from elmore.errors import ConfigError
from elmore.options import Compute, ComputeOptions
from elmore.published.catalog import bundled_model

if TYPE_CHECKING:
    from elmore.elmo import Elmo
    from elmore.tasks.predictions import TagPredictor

# A pipeline uses one model, a comparison two or three; the largest published one takes 0.4 GB.
_MAX_MODELS = 3


_lock = threading.Lock()
_models: OrderedDict[Hashable, Any] = OrderedDict()  # the least recently used first
# A forked process has its parent's models, perhaps with locks that nobody will release: it neither
# uses nor deletes them.
_inherited: list[Any] = []


def _forget() -> None:
    global _lock, _models
    _inherited.append(_models)
    _lock, _models = threading.Lock(), OrderedDict()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_forget)


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
    from elmore.elmo import Elmo

    compute = Compute(**options)

    def load() -> Elmo:
        return Elmo(read_checkpoint(bundled_model() if model is None else model), **options)

    elmo: Elmo = _once((_identity(model), compute), load)
    return elmo


def tagger_once(name: str, threads: int | None) -> TagPredictor[Any]:
    """A trained tagger, kept like a model."""
    from elmore.tasks.own.light import tagger

    key = _identity(name), threads
    found: TagPredictor[Any] = _once(key, lambda: tagger(name, threads=threads))
    return found


def _once(key: Hashable, load: Callable[[], Any]) -> Any:
    with _lock:
        if key not in _models:
            _models[key] = load()
            while len(_models) > _MAX_MODELS:
                _models.popitem(last=False)
        _models.move_to_end(key)
        return _models[key]


def _identity(model: ModelPath | None) -> Hashable:
    """What is equal for the same files in the same state, and for the same name."""
    if model is None:
        return None
    parts = model if isinstance(model, tuple) else (model,)
    return tuple(_state(Path(part)) if os.path.exists(part) else str(part) for part in parts)


def _state(path: Path) -> Hashable:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    states = [(file.name, file.stat()) for file in files]
    return (
        os.path.abspath(path),
        *((name, state.st_size, state.st_mtime_ns, state.st_ino) for name, state in states),
    )

"""numpy's BLAS held to one thread, where our own threads share the work.

Without the C extension every product is numpy's. Its threads meet at every step of an LSTM, and on
a busy machine they wait for each other most of the time: one thread per direction is up to six
times as fast (benchmarks/beside.py --native 0).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["one_blas_thread"]

# OpenBLAS, as numpy's wheels bundle it and as systems have it.
_PREFIXES = ("scipy_openblas", "openblas")
_SUFFIXES = ("64_", "_64", "")
_lock = threading.Lock()
_inside = 0
_before = 1


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let OpenBLAS use one thread, and give its threads back when the last user has left.

    The count belongs to the process, so users are counted. Another BLAS is left alone.
    """
    global _inside, _before
    control = _control()
    if control is None:
        yield
        return
    get, set_threads = control
    with _lock:
        if not _inside:
            _before = get()
            set_threads(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                set_threads(_before)


@lru_cache(maxsize=1)
def _control() -> tuple[Any, Any] | None:
    """The functions of the OpenBLAS inside numpy's wheel that get and set its threads."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            try:
                library = ctypes.CDLL(str(path))  # loaded already: this finds it again
            except OSError:
                continue
            for prefix in _PREFIXES:
                for suffix in _SUFFIXES:
                    name = f"{prefix}_{{}}_num_threads{suffix}"
                    get = getattr(library, name.format("get"), None)
                    change = getattr(library, name.format("set"), None)
                    if get is not None and change is not None:
                        return get, change
    return None

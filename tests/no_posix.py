"""A pytest plugin that hides what only POSIX systems have: `pytest -p no_posix --collect-only`."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import sys

import pytest

__all__ = ["pytest_collection"]

# Other people's modules come first: they have their own ways on Windows.
OTHERS = "torch.distributed matplotlib.pyplot pandas spacy ray pyspark datasets gensim uvicorn"
OTHERS += " fastapi.testclient huggingface_hub nbclient schemathesis sklearn.metrics filelock"
OTHERS += " playwright.sync_api multiprocessing.popen_spawn_posix hypothesis.strategies"


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Hide the names, before any file of the suite is imported."""
    for name in OTHERS.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in ("getuid", "geteuid", "mkfifo", "mknod", "killpg", "sched_getaffinity", "fork"):
        vars(os).pop(name, None)
    for name in ("SIGKILL", "SIGALRM", "SIGUSR1", "SIGHUP", "setitimer", "alarm"):
        vars(signal).pop(name, None)
    for name in ("resource", "fcntl", "pwd", "grp", "termios", "pty"):
        sys.modules[name] = None  # type: ignore[assignment]
    which = shutil.which
    shutil.which = lambda name, *args, **options: (  # type: ignore[assignment]
        None if name in ("bash", "sh") else which(name, *args, **options)
    )

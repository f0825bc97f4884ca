"""Models that many tests share; they are never changed."""

from __future__ import annotations

import ast
import signal
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from small_models import FIXTURES, HAS_TORCH, make_checkpoint, make_options

from elmore import Elmo
from elmore.formats.checkpoint import Checkpoint

# A slow machine is no failure; the same examples in every run.
settings.register_profile("elmore", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("elmore")

if HAS_TORCH:
    import torch

    # Small models gain nothing from more, and waiting threads lose much on a busy machine.
    torch.set_num_threads(1)

# Modules that import torch when they are imported.
_TORCH_MODULES = ("torch", "elmore.nn", "elmore.tasks", "small_training", "small_tasks")
_TORCH_MODULES += (
    "elmore.training.bilm.pretrain",
    "elmore.training.bilm.trainer",
)
_MISSING = tuple(name for name in ("gensim", "spacy") if find_spec(name) is None)
_MISSING += () if HAS_TORCH else _TORCH_MODULES


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the files that cannot be imported without torch, gensim or spaCy."""
    if not _MISSING or collection_path.suffix != ".py":
        return None
    tree = ast.parse(collection_path.read_text(encoding="utf-8"))
    names = [
        *(alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names),
        *(str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)),
    ]
    needed = (name for name in names if f"{name}.".startswith(tuple(f"{m}." for m in _MISSING)))
    return True if any(needed) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the original programs' own test files where they are: they are not part of elmore."""
    if not FIXTURES.exists():
        theirs = [item for item in items if item.get_closest_marker("originals")]
        config.hook.pytest_deselected(items=theirs)
        items[:] = [item for item in items if item not in theirs]


# A shell starts background jobs deaf to Ctrl-C, and every child would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A byte-CNN biLM (dim 32, 3 layers); its clips bite, and rounding noise dies out in it."""
    made = make_checkpoint(tmp_path_factory.mktemp("tiny"), make_options())
    return made.with_tokenizer("billion-word")  # HDF5 files do not say it


@pytest.fixture(scope="session")
def tiny_elmo(tiny_checkpoint: Checkpoint) -> Elmo:
    """`tiny_checkpoint`, loaded."""
    return Elmo(tiny_checkpoint, threads=2)


@pytest.fixture(scope="session")
def tiny_folder(tiny_elmo: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tiny_checkpoint` as an elmore folder. Copy it before you change anything."""
    path = tmp_path_factory.mktemp("folder") / "my-model"
    tiny_elmo.save(path)
    return path


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing is downloaded but from this machine, and nothing is kept in the user's cache."""
    monkeypatch.setenv("ELMORE_OFFLINE", "1")
    monkeypatch.setenv("ELMORE_HOME", str(tmp_path_factory.getbasetemp() / "no-home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    connect = socket.socket.connect

    def checked(self: socket.socket, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else ""
        if self.family != socket.AF_UNIX and not host.startswith(("127.", "::1", "localhost")):
            raise AssertionError(f"a test reached for the network: {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", checked)

"""Models that many tests share; they are never changed."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from small_models import FIXTURES, make_checkpoint, make_options, needs_fixtures

from elmore import Elmo
from elmore.formats.checkpoint import Checkpoint

__all__ = ["FIXTURES", "needs_fixtures"]

# A slow machine is no failure; the same examples in every run.
settings.register_profile("elmore", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("elmore")

# Small models gain nothing from more, and waiting threads lose much on a busy machine.
torch.set_num_threads(1)

# A shell starts background jobs deaf to Ctrl-C, and every child would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A byte-CNN biLM (dim 32, 3 layers); its clips bite, and rounding noise dies out in it."""
    return make_checkpoint(tmp_path_factory.mktemp("tiny"), make_options())


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

"""A small model behind the service, without and with a socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from slow_language_model import load_both
from starlette.testclient import TestClient

from elmore import Elmo
from elmore.senses import Index, build_index
from elmore.serve.app import make_app
from elmore.serve.settings import Settings
from serve.running import Running, start


@pytest.fixture(scope="session")
def lm(tmp_path_factory: pytest.TempPathFactory) -> Elmo:
    """An `Elmo` with a softmax."""
    return load_both(tmp_path_factory.mktemp("lm"))[0]


@pytest.fixture(scope="session")
def lm_folder(lm: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a folder whose name must never be seen."""
    path = tmp_path_factory.mktemp("secret-place") / "small-model"
    lm.save(path)
    return path


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Uses of two words, by the bundled model, in a folder whose name must never be seen."""
    folder = tmp_path_factory.mktemp("secret-place")
    sides = ["left", "right", "north", "south", "far", "other"]
    rivers = [
        f"They {verb} on the {side} bank of the river ."
        for verb in ("sat", "walked", "slept")
        for side in sides
    ]
    verbs = ["lent", "gave", "offered", "paid", "owed", "sent"]
    money = [f"The bank {verb} {who} the money ." for verb in verbs for who in ("him", "her", "us")]
    (folder / "rivers.txt").write_text("\n".join(rivers), "utf-8")
    (folder / "money.txt").write_text("\n".join(money), "utf-8")
    files = [folder / "rivers.txt", folder / "money.txt"]
    return build_index(files, folder / "uses", words=["bank", "the"])


@pytest.fixture(scope="session")
def client(lm: Elmo) -> Iterator[TestClient]:
    """The service in this process."""
    with TestClient(make_app(lm, Settings(name="small")), base_url="http://localhost") as client:
        yield client


@pytest.fixture(scope="session")
def running(lm_folder: Path) -> Iterator[Running]:
    """The service as a process with short times; tests must leave it well."""
    process = start(
        lm_folder,
        body_seconds=0.6,
        header_seconds=0.6,
        idle_seconds=5,
        body_bytes=100_000,
        sentences=100_000,
        tokens=400_000,
        queue_tokens=2_000_000,
    )
    yield process
    process.stop()

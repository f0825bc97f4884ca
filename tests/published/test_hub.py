"""The cache of published models: fetched once, checked each time."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import multiprocessing
import os
import pickle
import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from http_server import Server, serve
from small_models import posix

from elmore import Elmo
from elmore.embedding import load
from elmore.errors import ConfigError, ElmoreError, FormatError, MissingExtra, ModelNotFound
from elmore.formats import allennlp_hdf5
from elmore.formats.checkpoint import Checkpoint
from elmore.options import Fetch
from elmore.published import downloads, hub
from elmore.published.catalog import Published


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """A server, and a cache of its own."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("ELMORE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ELMORE_OFFLINE")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(downloads, "_ATTEMPTS", 2)
    monkeypatch.setattr(downloads, "_PAUSE", 0.001)
    with serve() as running:
        running.files["/options.json"] = b'{"lstm": 1}'
        running.files["/weights.hdf5"] = b"\x89HDF\r\n\x1a\n" + bytes(5000)
        yield running


def published(server: Server, name: str = "tiny", checksum: str | None = None) -> Published:
    return Published(
        name=name,
        language="en",
        form="allennlp",
        trained_on="nothing",
        page="https://example.org",
        files={file: (server.url(f"/{file}"),) for file in ("options.json", "weights.hdf5")},
        checksums={"weights.hdf5": checksum} if checksum else {},
    )


def test_a_model_is_fetched_once(server: Server) -> None:
    model = published(server)
    assert not hub.is_downloaded(model)
    files = hub.fetch_model(model)
    assert hub.is_downloaded(model)
    assert files["weights.hdf5"].read_bytes() == server.files["/weights.hdf5"]
    assert files["weights.hdf5"].parent == hub.home() / "models" / "tiny"
    sums = json.loads((hub.home() / "sums" / "tiny.json").read_text())
    for name, path in files.items():
        assert sums[name] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(server.requests) == 2
    assert hub.fetch_model(model) == files
    assert len(server.requests) == 2


def test_a_file_that_changed_here_is_noticed(server: Server) -> None:
    path = hub.fetch_model(published(server))["weights.hdf5"]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"weights\.hdf5' is not the file that was published"):
        hub.fetch_model(published(server))


def test_the_first_sum_seen_outlives_the_files(server: Server) -> None:
    model = published(server)
    addresses = (*model.files["weights.hdf5"], server.url("/none"))  # of several, too
    model = dataclasses.replace(model, files={**model.files, "weights.hdf5": addresses})
    hub.fetch_model(model)
    assert hub.prune([model]) == [hub.home() / "models" / "tiny"]
    assert not hub.is_downloaded(model)
    hub.fetch_model(model)  # the same bytes are welcome again
    hub.prune([model])
    server.files["/weights.hdf5"] += b"x"
    with pytest.raises(
        ElmoreError, match=r"first checksum seen is in .*tiny\.json', delete"
    ) as caught:
        hub.fetch_model(model)
    assert "\n" not in str(caught.value)
    assert not hub.is_downloaded(model)
    (hub.home() / "sums" / "tiny.json").unlink()
    hub.fetch_model(model)


@pytest.mark.parametrize("algorithm", ["sha256", "sha1"])
def test_files_that_were_put_there_by_hand(server: Server, algorithm: str) -> None:
    right = hashlib.new(algorithm, server.files["/weights.hdf5"]).hexdigest()
    model = published(server, checksum=f"{algorithm}:{right}")
    folder = hub.home() / "models" / "tiny"
    folder.mkdir(parents=True)
    (folder / "options.json").write_bytes(b"{}")
    (folder / "weights.hdf5").write_bytes(b"wrong")
    with pytest.raises(FormatError, match="is not the file"):
        hub.fetch_model(model)
    (folder / "weights.hdf5").write_bytes(server.files["/weights.hdf5"])
    assert hub.fetch_model(model)["options.json"].read_bytes() == b"{}"
    assert server.requests == []
    with pytest.raises(ElmoreError, match="expected 0000"):  # of a download, too
        hub.fetch_model(published(server, "other", f"{algorithm}:{'0' * 64}"))


@pytest.mark.parametrize(("name", "value"), [("ELMORE_OFFLINE", "1"), ("HF_HUB_OFFLINE", "true")])
def test_offline(server: Server, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    model = published(server)
    monkeypatch.setenv(name, value)
    with pytest.raises(ModelNotFound, match=r"'tiny' is not on this machine.*--offline"):
        hub.fetch_model(model)
    with pytest.raises(ModelNotFound, match="is not on this machine"):
        hub.fetch_address(server.url("/x.bin"))
    assert server.requests == []
    assert not hub.home().exists()
    monkeypatch.setenv(name, "0")
    files = hub.fetch_model(model)
    monkeypatch.setenv(name, value)
    assert hub.fetch_model(model) == files


def test_a_download_says_what_from_where_and_how_large(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = dataclasses.replace(published(server), megabytes=374)
    hub.fetch_model(model)
    said = capsys.readouterr().err
    where, to = server.url(""), hub.home() / "models" / "tiny"
    assert said == f"downloading model 'tiny' (about 374 MB) from {where} to {to}\n"
    hub.fetch_model(model)
    assert capsys.readouterr().err == ""  # it is here already
    monkeypatch.setattr(logging.getLogger("elmore"), "disabled", True)
    hub.fetch_address(server.url("/options.json"))
    assert capsys.readouterr().err == ""


def test_who_hears_of_a_download(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[tuple[int, int | None]] = []
    fetch = Fetch(progress=lambda *news: heard.append(news))
    hub.fetch_model(published(server), fetch)
    assert heard[-1] == (5008, 5008)  # bytes of the second file
    assert (11, 11) in heard
    capsys.readouterr()
    hub.fetch_model(published(server, "other"), Fetch(progress=True))
    assert "5.01k" in capsys.readouterr().err


def test_another_place_for_downloads(server: Server, tmp_path: Path) -> None:
    files = hub.fetch_model(published(server), Fetch(cache_dir=tmp_path / "here"))
    assert files["weights.hdf5"].is_relative_to(tmp_path / "here")
    assert not hub.home().exists()
    with pytest.raises(ConfigError, match="revision='v1' but 'tiny' has none"):
        hub.fetch_model(published(server), Fetch(revision="v1"))


@pytest.mark.parametrize("offline", [False, True])
def test_a_failed_download_says_where_to_put_the_files(
    server: Server, monkeypatch: pytest.MonkeyPatch, offline: bool
) -> None:
    model = published(server)
    server.files.clear()
    if offline:
        monkeypatch.setenv("ELMORE_OFFLINE", "1")
    with pytest.raises(ElmoreError) as caught:
        hub.fetch_model(model)
    assert "\n" not in str(caught.value)
    notes = "\n".join(caught.value.__notes__)
    for name, addresses in model.files.items():
        place = hub.home() / "models" / "tiny" / name
        assert f"  {addresses[0]}\n    as {place}" in notes
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"by hand")
    assert len(hub.fetch_model(model)) == 2


def test_other_addresses(server: Server) -> None:
    server.files["/a/x.bin"], server.files["/b/x.bin"] = b"a", b"b"
    paths = [hub.fetch_address(server.url(f"/{k}/x.bin")) for k in "ab"]
    assert [path.read_bytes() for path in paths] == [b"a", b"b"]
    assert [path.name for path in paths] == ["x.bin", "x.bin"]
    asked = len(server.requests)
    assert hub.fetch_address(server.url("/a/x.bin")) == paths[0]
    assert len(server.requests) == asked


def test_the_address_of_a_published_file_is_that_model(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = published(server)
    monkeypatch.setattr(hub, "find_file", lambda address: (model, "options.json"))
    path = hub.fetch_address("https://mirror.example.org/options.json")
    assert path == hub.home() / "models" / "tiny" / "options.json"


def test_prune(server: Server) -> None:
    model = published(server)
    hub.fetch_model(model)
    server.files["/x.bin"] = b"other"
    other = hub.fetch_address(server.url("/x.bin"))
    left = other.with_name("y.download")
    left.write_bytes(b"part")
    assert hub.prune([], dry_run=True) == [left]
    assert left.exists()
    assert hub.prune([]) == [left]
    assert not left.exists()
    assert other.is_file()
    assert hub.is_downloaded(model)
    assert hub.prune(None) == [hub.home() / "models" / "tiny", other.parent]
    assert not other.exists()


def test_a_cache_that_cannot_be_written(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = Path(os.environ["ELMORE_HOME"])
    blocked.write_text("a file")
    with pytest.raises(ElmoreError, match="cannot write"):
        hub.fetch_model(published(server))


# Several processes -------------------------------------------------------------------------------


def _fetch(address: str, results: Any) -> None:
    try:
        results.put(hub.fetch_address(address).stat().st_size)
    except BaseException as error:
        results.put(repr(error))


@posix
@pytest.mark.parametrize("killed", [False, True])
def test_many_processes_fetch_one_copy(server: Server, killed: bool) -> None:
    """Also if the one that began is killed."""
    address = server.url("/x.bin")
    server.files["/x.bin"] = bytes(100_000)
    server.cuts, server.delay = [60_000], [60.0 if killed else 0.3]  # so that all are there
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=_fetch, args=(address, results)) for _ in range(3)]
    for worker in workers:
        worker.start()
        while killed and worker is workers[0]:
            parts = list(hub.home().glob("files/*/x.bin.download"))
            if parts and parts[0].stat().st_size >= 60_000:
                worker.kill()
                break
    found = [results.get(timeout=30) for _ in workers[killed:]]
    for worker in workers:
        worker.join()
    assert found == [100_000] * len(found)
    assert server.asked() == [None, "bytes=60000-"]


# Names through the loader ------------------------------------------------------------------------


def test_load_by_name(
    server: Server,
    tiny_checkpoint: Checkpoint,
    tiny_elmo: Elmo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allennlp_hdf5.write(tiny_checkpoint, tmp_path / "pair")
    shutil.make_archive(str(tmp_path / "model"), "zip", tmp_path / "pair")
    for name in ("options.json", "weights.hdf5"):
        server.files[f"/{name}"] = (tmp_path / "pair" / name).read_bytes()
    server.files["/model.zip"] = (tmp_path / "model.zip").read_bytes()
    pair = published(server)
    packed = Published(
        name="tiny-zip",
        language="en",
        form="allennlp",
        trained_on="",
        page="",
        files={"model.zip": (server.url("/model.zip"),)},
    )
    models = {"tiny": pair, "tiny-zip": packed}
    monkeypatch.setattr(load, "catalog", lambda: models)
    monkeypatch.setattr(load, "find_published", models.__getitem__)
    [expected] = tiny_elmo.embed([["It", "fell"]], tokenized=True)
    for name in ("tiny", "tiny-zip"):
        [found] = Elmo.load(name).embed([["It", "fell"]], tokenized=True)
        np.testing.assert_allclose(found, expected, atol=1e-5)


class FakeHub(types.ModuleType):
    """`huggingface_hub` as far as we use it."""

    def __init__(self, folder: Path) -> None:
        super().__init__("huggingface_hub")
        self.folder = folder
        self.calls: list[dict[str, Any]] = []

    def snapshot_download(self, repo_id: str, **options: Any) -> str:
        self.calls.append({"repo_id": repo_id, **options})
        if repo_id == "a/missing":
            raise OSError("404 Client Error.\nmore")
        return str(self.folder)


@pytest.fixture
def fake(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    """A snapshot as Hugging Face keeps it: links into a folder of blobs."""
    snapshot, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for k, path in enumerate(tiny_folder.iterdir()):
        shutil.copy(path, blobs / str(k))
        (snapshot / path.name).symlink_to(Path("../../blobs") / str(k))
    module = FakeHub(snapshot)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.delenv("ELMORE_OFFLINE")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.chdir(tmp_path)
    return module


@pytest.mark.parametrize("name", ["hf://a/tiny", "a/tiny", "hf://a/tiny@v1.0"])
def test_hugging_face(fake: FakeHub, tiny_elmo: Elmo, name: str) -> None:
    elmo = Elmo.load(name)
    np.testing.assert_allclose(elmo.embed("It fell ."), tiny_elmo.embed("It fell ."), atol=1e-5)
    [call] = fake.calls
    assert call["repo_id"] == "a/tiny"
    assert call["revision"] == ("v1.0" if "@" in name else None)
    assert "*.safetensors" in call["allow_patterns"]
    assert call["local_files_only"] is False


def test_load_passes_everything_on(fake: FakeHub, tmp_path: Path) -> None:
    elmo = Elmo.load(
        "a/tiny", token="secret", revision="v2", cache_dir=tmp_path / "c", progress=False, threads=1
    )
    [call] = fake.calls
    assert (call["token"], call["revision"]) == ("secret", "v2")
    assert call["cache_dir"] == tmp_path / "c"
    assert call["tqdm_class"](total=2).disable  # no bar
    pickled = pickle.dumps(elmo)
    assert b"secret" not in pickled
    pickle.loads(pickled)
    assert fake.calls[1]["revision"] == "v2"
    assert fake.calls[1]["cache_dir"] == tmp_path / "c"
    with pytest.raises(ConfigError, match="'a/tiny@v1' names another revision than revision='v2'"):
        Elmo.load("a/tiny@v1", revision="v2")


def test_hugging_face_offline(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMORE_OFFLINE", "1")
    Elmo.load("hf://a/tiny", progress=True)
    assert fake.calls[0]["local_files_only"] is True
    assert fake.calls[0]["tqdm_class"] is None  # its own bar
    with pytest.raises(ModelNotFound, match=r"offline \(404 Client Error"):
        Elmo.load("a/missing")


def test_hugging_face_refusals(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelNotFound, match="cannot be downloaded from the Hugging Face hub"):
        Elmo.load("a/missing")
    with pytest.raises(ConfigError, match="write hf://owner/name"):
        Elmo.load("hf://x")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelNotFound, match=r"'a/tiny' does not exist.*elmore\[hub\]"):
        Elmo.load("a/tiny")
    with pytest.raises(MissingExtra, match=r"install elmore\[hub\]"):
        Elmo.load("hf://a/tiny")


def test_a_path_that_is_there_is_never_looked_for_elsewhere(
    fake: FakeHub, tiny_folder: Path
) -> None:
    shutil.copytree(tiny_folder, Path("a") / "tiny")
    Elmo.load("a/tiny")
    assert fake.calls == []

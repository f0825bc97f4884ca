"""Pushing to a hub on this machine with the real client, and fetching again."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from fake_hub import FakeHub, serve_hub
from huggingface_hub import constants
from small_tasks import make, write_data
from small_training import small_data, small_recipe

from elmore import Elmo, Run, pretrain
from elmore.errors import ConfigError, ElmoreError, FormatError, MissingExtra
from elmore.integrations.huggingface import model_card, push_to_hub
from elmore.tasks.own.light import tagger

SENTENCE = "It fell ."


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A hub, and a client that knows no other and keeps nothing of the user's."""
    monkeypatch.delenv("ELMORE_OFFLINE")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    with serve_hub() as running:
        for name in ("ENDPOINT", "_HF_DEFAULT_ENDPOINT"):
            monkeypatch.setattr(constants, name, running.address, raising=False)
        template = running.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield running


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A short training with all that a run leaves behind."""
    place = tmp_path_factory.mktemp("run")
    return pretrain(small_data(place), out=place / "run", recipe=small_recipe(), seed=0)


def test_there_and_back(hub: FakeHub, tiny_folder: Path, tiny_elmo: Elmo) -> None:
    address = push_to_hub(tiny_folder, "ada/tiny", message="First", private=True)
    assert address.startswith(f"{hub.address}/ada/tiny/commit/")
    files = hub.repositories["ada/tiny"]["main"]
    assert set(files) == {
        *("config.json", "model.safetensors", "manifest.json", "README.md", ".gitattributes")
    }
    for name in ("config.json", "model.safetensors", "manifest.json"):
        assert files[name] == (tiny_folder / name).read_bytes()
    asked = hub.created[0]  # its newer versions send the second
    assert asked.get("private") is True or asked.get("visibility") == "private"
    assert hub.commits == [("ada/tiny", "main", "First")]
    assert hub.tokens["/api/models/ada/tiny/commit/main"] == "Bearer secret"
    for name in ("ada/tiny", "hf://ada/tiny"):
        found = Elmo.load(name).embed(SENTENCE)
        np.testing.assert_allclose(found, tiny_elmo.embed(SENTENCE), atol=1e-5)


def test_a_loaded_model_and_other_formats(
    hub: FakeHub, tiny_elmo: Elmo, tiny_checkpoint: Any, tmp_path: Path
) -> None:
    from elmore.formats import allennlp_hdf5

    tiny_elmo.save(tmp_path / "half", precision="float16")
    half = Elmo.load(tmp_path / "half")
    push_to_hub(half, "ada/half")
    stored = hub.repositories["ada/half"]["main"]
    assert stored["model.safetensors"] == (tmp_path / "half" / "model.safetensors").read_bytes()
    allennlp_hdf5.write(tiny_checkpoint, tmp_path / "old")
    push_to_hub((tmp_path / "old" / "options.json", tmp_path / "old" / "weights.hdf5"), "ada/old")
    assert "weights.hdf5" not in hub.repositories["ada/old"]["main"]
    found = Elmo.load("ada/old").embed([["It", "fell"]], tokenized=True)
    np.testing.assert_allclose(found, tiny_elmo.embed([["It", "fell"]], tokenized=True), atol=1e-5)


def test_of_a_run_the_best_model_and_nothing_else(hub: FakeHub, run: Run) -> None:
    assert (run.path / "resume").is_dir()
    push_to_hub(run.path, "ada/run", card="# Mine\n")
    files = hub.repositories["ada/run"]["main"]
    best = {path.name: path.read_bytes() for path in run.best_path.iterdir()}
    assert files == {**best, "README.md": b"# Mine\n", ".gitattributes": b""}
    assert "vocab.txt" in best
    np.testing.assert_allclose(
        Elmo.load("ada/run").embed("wa wb"), run.elmo().embed("wa wb"), atol=1e-5
    )


def test_a_new_model_takes_the_place_of_the_old_one(
    hub: FakeHub, run: Run, tiny_folder: Path, tmp_path: Path
) -> None:
    push_to_hub(run, "ada/model")
    hub.repositories["ada/model"]["main"]["notes.txt"] = b"mine"
    push_to_hub(tiny_folder, "ada/model", revision="second")
    push_to_hub(tiny_folder, "ada/model")
    files = hub.repositories["ada/model"]["main"]
    assert "vocab.txt" not in files  # it would not fit the manifest
    assert files["notes.txt"] == b"mine"
    assert Elmo.load("ada/model").dim == 32
    assert hub.commits[1][:2] == ("ada/model", "second")


def test_only_files_of_the_format_are_sent(hub: FakeHub, tiny_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(tiny_folder, path)
    for name in ("optimizer.pt", "notes.pkl", "secrets.json", "README.md"):
        (path / name).write_bytes(b"private")
    push_to_hub(path, "ada/model")
    files = hub.repositories["ada/model"]["main"]
    assert not {"optimizer.pt", "notes.pkl", "secrets.json"} & set(files)
    assert b"private" not in files["README.md"]


def test_a_damaged_folder_is_not_sent(hub: FakeHub, tiny_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(tiny_folder, path)
    data = bytearray((path / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "model.safetensors").write_bytes(data)
    with pytest.raises(FormatError, match="differs from its SHA-256"):
        push_to_hub(path, "ada/model")
    assert hub.repositories == {}


def test_the_card_of_a_run_tells_its_facts(run: Run) -> None:
    text = model_card(run, "ada/run", language=["en", "de"], licence="cc-by-4.0", data="Two words.")
    head = huggingface_hub.ModelCard(text).data.to_dict()
    assert head["library_name"] == "elmore"
    assert (head["language"], head["license"]) == (["en", "de"], "cc-by-4.0")
    notes = run.elmo().checkpoint.notes
    for fact in (
        "# run",
        'elmo = Elmo.load("ada/run")',
        f'"tokens_seen": {notes["training"]["tokens_seen"]}',
        f"{np.exp(notes['training']['heldout_loss']):.1f}, mean of the directions",
        "Two words.",
    ):
        assert fact in text
    recipe = text.partition("## Recipe\n\n```json\n")[2].partition("```")[0]
    assert json.loads(recipe) == json.loads(json.dumps(run.recipe.to_json()))


def test_refusals(
    hub: FakeHub, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tiny", "a/b/c", "ada/tiny@main", ""):
        with pytest.raises(ConfigError, match="write owner/name"):
            push_to_hub(tiny_folder, name)
    hub.refuses = 403
    with pytest.raises(ElmoreError, match=r"'ada/tiny' could not be pushed .*hf auth login"):
        push_to_hub(tiny_folder, "ada/tiny")
    monkeypatch.setenv("ELMORE_OFFLINE", "1")
    with pytest.raises(ElmoreError, match="elmore is offline"):
        push_to_hub(tiny_folder, "ada/tiny")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=r"install elmore\[hub\]"):
        push_to_hub(tiny_folder, "ada/tiny")


def test_a_trained_task_there_and_back(
    hub: FakeHub, tiny_elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELMORE_HOME", str(tmp_path / "home"))
    task = make("tag", tiny_elmo, schedule__epochs="2")
    task.fit(write_data("tag", tmp_path), dev=write_data("tag", tmp_path), out=tmp_path / "run")
    push_to_hub(tmp_path / "run", "ada/names")
    push_to_hub(task, "ada/again")
    files = hub.repositories["ada/names"]["main"]
    assert {"task.json", "model.safetensors", "words.txt", "elmo/config.json"} <= set(files)
    assert files.keys() == hub.repositories["ada/again"]["main"].keys()
    card = files["README.md"].decode()
    assert 'elmore.tagger("ada/names")' in card
    assert "f1" in card
    for _ in range(2):  # downloaded, and there
        found = tagger("ada/names").predict([SENTENCE])
        assert found == task.predict([SENTENCE])
    push_to_hub(tiny_elmo, "ada/tiny")
    with pytest.raises(ElmoreError, match="is not a trained task"):
        tagger("ada/tiny")

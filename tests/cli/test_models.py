"""`elmore models`, and names of models in other verbs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elmore.published import hub
from elmore.published.catalog import INCLUDED, catalog, find_published


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELMORE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def put(home: Path, name: str) -> Path:
    folder = home / "models" / name
    folder.mkdir(parents=True)
    for file in find_published(name).files:
        (folder / file).write_bytes(b"x")
    return folder


def test_the_list(cli, home):
    result = cli("models")
    assert result.code == 0
    lines = result.out.splitlines()
    assert len(lines) == 1 + len(catalog())
    assert lines[1].split()[:6] == ["english", "en", "384", "32", "elmore", "yes"]
    assert lines[0].split()[:4] == ["name", "language", "dim", "MB"]
    assert any(line.startswith("original-5.5b ") for line in lines)
    assert str(home) in result.err


def test_one_language_as_json(cli, home):
    rows = json.loads(cli("models", "--language", "de", "--json").out)
    assert {row["language"] for row in rows} == {"de"}
    assert {row["name"] for row in rows} >= {"de-wiki", "manylangs-de"}
    assert not any(row["on_disk"] for row in rows)
    wiki = next(row for row in rows if row["name"] == "de-wiki")
    assert wiki["licence"] == "BSD-2-Clause"
    assert wiki["checksums"]["weights.hdf5"].startswith("sha1:")


def test_what_is_downloaded(cli, home):
    put(home, "small")
    rows = json.loads(cli("models", "--downloaded", "--json").out)
    assert [row["name"] for row in rows] == [*INCLUDED, "small"]
    assert [row["on_disk"] for row in rows] == [True, True, True]
    assert "small" in cli("models", "--downloaded", "--language", "en").out


def test_prune(cli, home):
    small, medium, ja = (put(home, name) for name in ("small", "medium", "ja"))
    part = ja / "y.download"
    part.write_bytes(b"")
    shown = cli("models", "--prune", "small", "--dry-run")
    assert shown.out.splitlines() == [str(small), str(part)]
    assert small.exists()
    assert cli("models", "--prune", "small").code == 0
    assert not small.exists()
    assert not part.exists()
    assert medium.exists()
    assert json.loads(cli("models", "--prune", "all", "--json").out) == [str(ja), str(medium)]
    assert not any(hub.is_downloaded(model) for model in catalog().values())
    assert cli("models", "--prune", "parts").out == ""


def test_offline_is_a_flag_of_every_verb_that_takes_a_model(cli, home, monkeypatch, tmp_path):
    monkeypatch.delenv("ELMORE_OFFLINE")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    text = tmp_path / "text.txt"
    text.write_text("It fell .\n")
    for arguments in (
        ["embed", text, "--model", "small", "--offline"],
        ["info", "small", "--offline"],
        ["convert", "small", "-o", tmp_path / "x", "--offline"],
    ):
        result = cli(*arguments)
        assert result.code == 1
        assert "'small' is not on this machine and elmore is offline" in result.err
    assert not hub.is_offline()  # the flag ends with the verb

"""How verbs are told which model to use: --model, a first word, or nothing for English."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elmore.published.catalog import bundled_model


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "text.txt"
    path.write_text("A plant grew .\n", encoding="utf-8")
    return path


def test_embed_and_info_use_english(cli, lines):
    [record] = cli("embed", lines).records()
    [named] = cli("embed", lines, "--model", "english").records()
    assert record == named
    described = json.loads(cli("info", "--json").out)
    for words in ([bundled_model()], ["english"]):
        assert json.loads(cli("info", *words, "--json").out) == described


@pytest.mark.parametrize("verb", ["embed", "score", "predict pos", "explore --word plant"])
def test_an_argument_with_a_space_is_a_sentence(cli, lines, verb):
    assert cli(*verb.split(), "A plant grew .").out == cli(*verb.split(), lines).out
    assert cli(*verb.split(), "--", "A plant grew .").code == 0
    missing = cli(*verb.split(), "nothing.txt")
    assert (missing.code, "'nothing.txt' does not exist" in missing.err) == (1, True)


def test_score_takes_sentences(cli, lines, tmp_path):
    one = cli("score", lines).out
    assert cli("score", "A plant grew .").out == one
    assert cli("score", "A plant grew .", lines, "--model", bundled_model()).out == one * 2
    assert len(cli("score", "It fell. It rose.", "--split-sentences").records()) == 2
    assert len(cli("score", "It fell .\nIt rose .", "--limit", 1).records()) == 1
    (tmp_path / "a b.txt").write_text("It fell .\n")
    assert cli("score", "a b.txt").records()[0]["tokens"] == ["It", "fell", "."]
    assert cli("score", "x " * 400).code == 0  # too long for the name of a file


def test_a_path_wins_over_a_name(cli, lines, tmp_path):
    (tmp_path / "english").write_bytes(lines.read_bytes())
    assert cli("score", "english").out == cli("score", lines).out
    refused = cli("info", "english")
    assert refused.code == 1
    assert "not the published model" in refused.err

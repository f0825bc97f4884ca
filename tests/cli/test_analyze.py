"""`elmore analyze`."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest
from analysis.test_neighbors import LINES
from analysis.test_pos import conllu, sentences
from analysis.test_wsd import make

from cli.conftest import as_new_click
from elmore import Elmo
from elmore.analysis import Neighbors, Pos, Wsd


@pytest.fixture
def treebank(tmp_path):
    paths = [tmp_path / f"{name}.conllu" for name in ("train", "dev", "test")]
    for seed, path in enumerate(paths):
        path.write_text(conllu(sentences(20, seed)), encoding="utf-8")
    return paths


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def test_pos(cli, tiny_folder, treebank, tmp_path, monkeypatch):
    base = ["analyze", "pos", *treebank, "--model", tiny_folder, "--tags", "upos", "--threads", 1]
    result = cli(*base, "--no-random", "--json", "--cache", tmp_path / "cache")
    assert (result.code, result.err) == (0, "")
    elmo = Elmo.load(tiny_folder, threads=1)
    expected = Pos(elmo, tags=["upos"], random=False).run(treebank)
    report = json.loads(result.out)
    assert report["tables"] == expected.to_dict()["tables"]
    assert list((tmp_path / "cache").glob("layers-*"))
    text = cli(*base, "--no-random", "--layers", "mean", "--cache", tmp_path / "cache").out
    assert text.splitlines()[0] == "upos"
    assert "layer 1" not in text
    assert f"{report['metrics']['upos mean']:.2f}" in text
    assert "random, layer 2" in cli(*base).out
    monkeypatch.setenv("ELMORE_ANALYZE_POS_NO_RANDOM", "1")
    limited = json.loads(cli(*base, "--limit", 7, "--json").out)
    assert not any(name.startswith("upos random") for name in limited["metrics"])
    assert "(7 sentences, 42 words)" in limited["measured_on"]["train"]


def test_wsd(cli, tiny_folder, tmp_path):
    folder = make(tmp_path / "wsd")
    result = cli("analyze", "wsd", folder, "--model", tiny_folder, "--json", "--seed", 3)
    expected = Wsd(Elmo.load(tiny_folder), seed=3).run(folder)
    assert json.loads(result.out)["metrics"] == expected.metrics
    # A model before the inputs takes but one word.
    result = cli("analyze", "wsd", "--model", tiny_folder, folder, "--no-random")
    assert result.out.splitlines()[0] == "wsd"


def test_neighbors(cli, tiny_folder, corpus, tmp_path):
    base = ["analyze", "neighbors", "--model", tiny_folder, "--query", "bank", "--json"]
    expected = Neighbors(Elmo.load(tiny_folder)).run(corpus, query="bank").to_dict()
    report = json.loads(cli(*base, corpus).out)
    assert report == expected
    packed = tmp_path / "corpus.gz"
    packed.write_bytes(gzip.compress(corpus.read_bytes()))
    assert json.loads(cli(*base, packed).out)["tables"] == expected["tables"]
    stdin = json.loads(cli(*base, stdin=corpus.read_bytes()).out)
    assert (stdin["tables"], stdin["measured_on"]["text"]) == (expected["tables"], "stdin")
    two = json.loads(cli(*base, corpus, corpus, "--limit", 20).out)
    assert two["measured_on"]["text"] == f"{corpus}, {corpus}"
    assert two["measured_on"]["occurrences"] == 18
    uses = tmp_path / "uses"
    kept = ("--substitutes", 0, "--layers", "top", "--min-count", 1)
    assert cli("index", corpus, "--model", tiny_folder, *kept, "-o", uses).code == 0
    report = json.loads(cli(*base, uses).out)
    assert (report["tables"], report["measured_on"]["text"]) == (expected["tables"], str(uses))
    given = json.loads(
        cli(
            *base,
            corpus,
            "--top",
            2,
            "--same-word",
            "--context",
            "a river bank",
            "--context",
            "no bank",
            "--layers",
            1,
        ).out
    )
    titles = list(given["tables"])
    assert titles[:2] == ["1. nearest to: a river [bank]", "2. nearest to: no [bank]"]
    assert [len(given["tables"][title]) for title in titles] == [2, 2, 2]


def test_files_and_pictures(cli, tiny_folder, treebank, corpus, tmp_path):
    model = ["--model", tiny_folder, "--threads", 1]
    runs = {
        "pos": [*treebank, "--no-random", "--layers", "0"],
        "wsd": [make(tmp_path / "wsd"), "--no-random"],
        "neighbors": [corpus, "--query", "bank"],
    }
    for probe, arguments in runs.items():
        report, picture = tmp_path / f"{probe}.json", tmp_path / f"{probe}.svg"
        line = ["analyze", probe, *arguments, *model, "-o", report, "--plot", picture]
        result = cli(*line)
        assert (result.code, result.out, result.err) == (0, "", f"drew {picture}\n")
        assert json.loads(report.read_text())["name"] == probe
        assert "<svg" in picture.read_text()
        again = cli(*line)
        assert again.code == 2
        assert "pass --force to replace it" in again.err
        assert cli(*line, "--force", "-q").err == ""
    text = tmp_path / "report.txt"
    assert cli("analyze", "neighbors", corpus, *model, "--query", "bank", "-o", text).code == 0
    assert text.read_text().startswith("1. nearest to: ")


def test_errors(cli, tiny_folder, treebank, corpus, tmp_path):
    bad = tmp_path / "bad.conllu"
    bad.write_text("1\tIt\n")
    model = ["--model", tiny_folder]
    for code, message, arguments in [
        (2, "no such command 'ner'", ["ner", corpus, *model]),
        (2, "missing command", []),
        (2, "missing argument 'TEST'", ["pos", *treebank[:2], *model]),
        (2, "unexpected extra argument", ["wsd", *treebank[:2], *model]),
        (2, "is not a folder", ["wsd", corpus, *model]),
        (2, "missing option --query", ["neighbors", corpus, *model]),
        (2, "no such option --query", ["pos", *treebank, *model, "--query", "x"]),
        (
            2,
            "no such option --tags",
            ["neighbors", corpus, *model, "--query", "x", "--tags", "upos"],
        ),
        (2, "use upos, xpos or both", ["pos", *treebank, *model, "--tags", "ner"]),
        (
            2,
            "not one of mean, top, a number",
            ["neighbors", corpus, *model, "--query", "x", "--layers", "all"],
        ),
        (2, "layers 0..2", ["pos", *treebank, *model, "--layers", "9"]),
        (2, "no such option --query", ["--query", "pos", "neighbors", corpus]),
        (2, "no such option --seed", ["neighbors", corpus, *model, "--query", "x", "--seed", 1]),
        (2, "is not a picture", ["neighbors", corpus, *model, "--query", "the", "--plot", "x.gif"]),
        (1, f"{bad}:1: 2 columns, expected 10", ["pos", bad, bad, bad, *model]),
        (1, "needs semcor.jsonl", ["wsd", tmp_path, *model]),
        (
            1,
            f"{corpus}: the text has no 'zebra'",
            ["neighbors", corpus, *model, "--query", "zebra"],
        ),
        (1, "does not exist", ["neighbors", tmp_path / "none", *model, "--query", "x"]),
    ]:
        result = cli("analyze", *arguments)
        assert (result.code, result.out) == (code, ""), arguments
        assert message in as_new_click(result.err)
        assert result.err.startswith("elmore: error: ")
        assert result.err.count("\n") == 1


def test_the_names_are_listed_without_torch():
    code = "import sys, elmore.analysis as a; print(dir(a) == a.__all__, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"

"""`elmore predict` with taggers and classifiers, and training on one's own data."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from small_tasks import CLASSIFY, make, write_data

from elmore import Elmo
from elmore.tasks.folder import ready_models
from elmore.tasks.own.light import classifier, tagger


@pytest.fixture(scope="module")
def trained(tiny_elmo: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trained")
    for name in ("tag", "classify"):
        task = make(name, tiny_elmo, schedule__epochs="40")
        task.fit(write_data(name, place))
        task.save(place / name)
    plain = make("tag", tiny_elmo, schedule__epochs="40")
    plain.fit([["Ada", "fell"], ["It", "fell"]] * 4, [["N+X", "V+Y"], ["P+X", "V+Y"]] * 4)
    plain.save(place / "plain")
    return place


def test_spans_and_tags(cli: Any, trained: Path) -> None:
    result = cli("predict", trained / "tag", "Bo met Ada")
    assert result.code == 0, result.err
    assert result.out == "[PER Bo] met [PER Ada]\n"
    assert result.err == ""
    result = cli("predict", trained / "plain", "-q", stdin=b"Ada fell\n\nIt\n")
    lines = [line.split() for line in result.out.split("\n")]
    assert [line[:3] for line in lines] == [
        *(["Ada", "N", "X"], ["fell", "V", "Y"], [], [], ["It", "P", "X"], [], [])
    ]
    assert result.err == ""


def test_files_and_formats(cli: Any, trained: Path, tmp_path: Path) -> None:
    text = tmp_path / "in.txt"
    text.write_text("Bo met Ada\nYes\n", encoding="utf-8")
    wanted = [one.to_json() for one in tagger(trained / "tag").predict(["Bo met Ada", "Yes"])]
    out = tmp_path / "out.jsonl"
    result = cli("predict", trained / "tag", text, "-o", out)
    assert result.code == 0
    assert "tokens per second" in result.err
    assert [json.loads(line) for line in out.read_text().splitlines()] == wanted
    again = cli("predict", trained / "tag", text, "-o", out)
    assert "out.jsonl" in again.err
    assert again.code != 0  # it exists
    result = cli("predict", trained / "tag", text, "--format", "conll", "--limit", 1)
    assert result.out == "Bo\tB-PER\nmet\tO\nAda\tB-PER\n\n"


def test_classify(cli: Any, trained: Path, tmp_path: Path) -> None:
    texts = [text for text, _ in CLASSIFY]
    found = classifier(trained / "classify").predict(texts)
    table = tmp_path / "new.csv"
    rows = "".join(f'"{text}",{k}\n' for k, text in enumerate(texts))
    table.write_text(f"review,id\n{rows}", encoding="utf-8")
    result = cli("predict", trained / "classify", table, "--format", "jsonl")
    assert result.code == 0, result.err
    assert [r["label"] for r in result.records()] == [one.label for one in found]
    assert [r["review"] for r in result.records()] == texts
    packed = tmp_path / "new.csv.gz"
    packed.write_bytes(gzip.compress(table.read_bytes()))
    again = cli("predict", trained / "classify", packed, "--format", "jsonl")
    assert again.records() == result.records()
    column = ["--format", "jsonl", "--column", "id"]
    assert len(cli("predict", trained / "classify", table, *column).records()) == len(texts)
    result = cli("predict", trained / "classify", "A true joy")
    assert result.out.split() == [
        "good",
        f"{found[0].probabilities['good']:.2f}",
        "A",
        "true",
        "joy",
    ]
    out = tmp_path / "out.tsv"
    plain = "\n".join(texts).encode()
    assert cli("predict", trained / "classify", "-o", out, stdin=plain).code == 0
    head, *lines = (line.split("\t") for line in out.read_text().splitlines())
    assert head == ["text", "label", "probability"]
    assert [line[:2] for line in lines] == [
        [text, one.label] for one, text in zip(found, texts, strict=True)
    ]


def test_lines_that_are_not_utf8(cli: Any, trained: Path, tmp_path: Path) -> None:
    text, table = tmp_path / "in.txt", tmp_path / "in.csv"
    text.write_bytes(b"A true joy\ncaf\xe9\n")
    table.write_bytes(b"text\n" + text.read_bytes())
    assert "--errors replace" in cli("predict", trained / "classify", text).err
    result = cli("predict", trained / "classify", text, "--errors", "replace", "-f", "jsonl")
    assert [record["text"] for record in result.records()] == ["A true joy", "caf\ufffd"]
    result = cli("predict", trained / "classify", text, "--errors", "skip", "-f", "jsonl")
    assert [record["text"] for record in result.records()] == ["A true joy"]
    result = cli("predict", trained / "classify", table, "--errors", "skip")
    assert (result.code, result.out) == (2, "")
    assert "--errors is for text files" in result.err


def test_a_table_keeps_its_columns(cli: Any, trained: Path, tmp_path: Path) -> None:
    table, out = tmp_path / "new.csv", tmp_path / "labels.csv"
    table.write_text('id,review,label\n7,"A true, joy",x\n8,Mess,y\n', encoding="utf-8")
    result = cli("predict", trained / "classify", table, "-o", out)
    assert result.code == 0, result.err
    head, first, second = csv.reader(out.read_text("utf-8").splitlines())
    assert head == ["id", "review", "label", "predicted_label", "probability"]
    assert first[:4] == ["7", "A true, joy", "x", "good"]
    assert second[:3] == ["8", "Mess", "y"]


def test_json_lines_with_other_keys(cli: Any, trained: Path, tmp_path: Path) -> None:
    table = tmp_path / "new.jsonl"
    table.write_text('{"id": 7, "text": "Joy"}\n{"text": "Mess", "id": 8}\n{"text": "A"}\n')
    result = cli("predict", trained / "classify", table, "--format", "csv")
    head, *rows = csv.reader(result.out.splitlines())
    assert head[:2] == ["id", "text"]
    assert [row[:2] for row in rows] == [["7", "Joy"], ["8", "Mess"], ["", "A"]]
    table.write_text('{"text": "Joy"}\n{"text": "Mess", "id": 8}\n')
    refused = cli("predict", trained / "classify", table, "-o", tmp_path / "out.csv")
    assert refused.code == 1
    assert "new.jsonl:2: column 'id' is not in the first row; write jsonl" in refused.err
    assert not (tmp_path / "out.csv").exists()
    assert len(cli("predict", trained / "classify", table, "-f", "jsonl").records()) == 2


def test_no_colours_in_a_file(
    cli: Any, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for verb, text in (("tag", "Bo met Ada"), ("classify", "A true joy")):
        out, words = tmp_path / f"{verb}.txt", ["predict", trained / verb, text]
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        assert cli(*words, "-o", out).code == 0
        assert "\x1b" not in out.read_text()
        assert "\x1b" in cli(*words).out


def test_the_tokenizer_of_the_command_line(cli: Any, trained: Path) -> None:
    words = ["predict", trained / "plain", "Ada,Bo met Ada", "--format", "conll"]
    assert [line.split("\t")[0] for line in cli(*words).out.splitlines()][:3] == ["Ada", ",", "Bo"]
    spaces = cli(*words, "--tokenizer", "spaces").out.splitlines()
    assert [line.split("\t")[0] for line in spaces] == ["Ada,Bo", "met", "Ada", ""]


def test_the_device_is_used(cli: Any, trained: Path) -> None:
    result = cli("predict", trained / "plain", "Ada fell", "--device", "foo")
    assert (result.code, result.out) == (2, "")
    assert "device='foo' cannot be used here" in result.err


def test_own_columns_curve_and_picture(cli: Any, tiny_folder: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "data.tsv", tmp_path / "out"
    rows = "".join(f"{text}\t{label}\n" for text, label in CLASSIFY * 3)
    data.write_text(f"opinion\twhat\n{rows}", encoding="utf-8")
    columns = ["--column", "opinion", "--label", "what"]
    train = ["train", "classify", data, *columns, "-o", out, "--model", tiny_folder]
    result = cli(*train, "--curve", "--set", "schedule.epochs=2", "--json", "--threads", 1)
    assert result.code == 0, result.err
    tables = json.loads(result.out)["tables"]
    assert {"labels", "against a baseline", "learning curve", "classes"} <= set(tables)
    assert tables["learning curve"][-1]["examples"] == 20
    assert tables["labels"][0]["training"] + tables["labels"][0]["held out"] == 12
    picture = tmp_path / "confusions.svg"
    result = cli("evaluate", out, data, *columns, "--plot", picture)
    assert result.code == 0, result.err
    assert "<svg" in picture.read_text()
    assert "accuracy" in result.out


@pytest.mark.parametrize("flag", ["--dev", "--test"])
def test_an_unknown_label_is_found_before_the_training(flag: str, cli: Any, tmp_path: Path) -> None:
    data, other, out = tmp_path / "data.csv", tmp_path / "other.csv", tmp_path / "out"
    data.write_text("text,label\n" + "a,x\nb,y\n" * 6, encoding="utf-8")
    other.write_text("text,label\na,x\nb,zebra\n", encoding="utf-8")
    train = ["train", "classify", data, "--no-elmo", "-o", out]
    result = cli(*train, flag, other)
    assert result.code == 1
    assert "other.csv:3: the label 'zebra' does not occur in the training data" in result.err
    assert not out.exists()


@pytest.mark.parametrize("task", ["tag", "classify"])
def test_the_models_that_ship_fit_the_model_that_ships(task: str) -> None:
    load: Any = tagger if task == "tag" else classifier
    names = ready_models()[:2] if task == "tag" else ready_models()[2:]
    elmo = Elmo.load(threads=1)
    for name in names:
        model = load(name, elmo=elmo)
        (found,) = model.predict(["Ada lives in Rome, and she loves it."])
        assert found.probabilities
        if name == "pos":
            assert found.tags[:5] == ("PROPN+NNP", "VERB+VBZ", "ADP+IN", "PROPN+NNP", "PUNCT+,")
        if name == "chunk":
            assert [span.label for span in found.spans][:4] == ["NP", "VP", "PP", "NP"]
        if name == "sentiment":
            assert found.label == "positive"

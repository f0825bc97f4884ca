"""`elmore train`, `evaluate` and `predict` for all tasks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_tasks import NAMES, QUICK, SIZES, write_data

PLAIN = {
    "tag": b"Ada lives in Rome .\n",
    "classify": b"A joy .\nA mess. I left.\n",
    "ner": b"Ada lives in Rome .\n",
    "sentiment": b"A joy .\nA mess .\n",
    "nli": b"A man sleeps .\tA man is awake .\n",
    "srl": b"She sold the car\nNothing\n",
    "qa": b"Where is it?\tThe tower stands in Paris, France.\n",
    "coref": b"Ada met Bo.\nShe liked him.\n\nIt fell.\n",
}
N_LINES = {
    "tag": 1,
    "classify": 2,
    "ner": 1,
    "sentiment": 2,
    "nli": 1,
    "srl": 2,
    "qa": 1,
    "coref": 2,
}


def settings(name: str, epochs: int = 1) -> list[str]:
    values = {**QUICK, **SIZES[name], "schedule.epochs": str(epochs)}
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]


@pytest.mark.parametrize("name", NAMES)
def test_train_evaluate_predict(name: str, cli: Any, tiny_folder: Path, tmp_path: Path) -> None:
    data, out = write_data(name, tmp_path), tmp_path / "out"
    train = ["train", name, data, "--dev", data, "--model", tiny_folder, "-o", out]
    result = cli(*train, *settings(name), "--json", "--threads", 1)
    assert result.code == 0, result.err
    assert json.loads(result.out)["name"] == name
    assert "epoch 1: " in result.err
    assert json.loads((out / "results.json").read_text())["name"] == name
    result = cli("evaluate", out, data, "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["measured_on"]["examples"] == 8
    result = cli("predict", out, "-f", "jsonl", stdin=PLAIN[name])
    assert result.code == 0, result.err
    assert len(result.records()) == N_LINES[name]
    result = cli("predict", out, stdin=PLAIN[name])
    assert result.code == 0, result.err
    assert "\x1b" not in result.out  # colours are for terminals
    assert len(result.out.splitlines()) >= N_LINES[name]


def test_seeds_test_files_and_resume(cli: Any, tmp_path: Path) -> None:
    data, out = write_data("sentiment", tmp_path), tmp_path / "out"
    train = ["train", "sentiment", data, "--dev", data, "--test", data, "--no-elmo"]
    train += [*settings("sentiment"), "-o", out, "--seeds", 2, "--seed", 3]
    result = cli(*train)
    assert result.code == 0, result.err
    assert "accuracy sd" in result.out
    assert "seed 4: epoch 1: accuracy" in result.err
    assert {path.name for path in out.iterdir()} == {"seed-3", "seed-4", "results.json"}
    again = cli(*train, "--resume", "-q")
    assert again.code == 0, again.err
    assert (again.out, again.err) == (result.out, "")
    refused = cli(*train)
    assert refused.code == 1
    assert "--resume" in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train ner {d} -o {t}/o --no-elmo --recipe srl-laptop", "unknown key"),
        ("train ner {d} -o {t}/o --no-elmo --recipe lapto", "no recipe is called"),
        ("train ner {d} -o {t}/o --no-elmo --set model.dropout=2", "model.dropout=2"),
        ("train ner {d} -o {t}/o --no-elmo --device foo", "device='foo' cannot be used"),
        ("train tag {d} -o {t}/o --no-elmo --separator x", "--separator: only for classify"),
        ("train tag {d} -o {t}/o --no-elmo --column 2", "is not a table"),
    ],
)
def test_misuse(arguments: str, message: str, cli: Any, tiny_folder: Path, tmp_path: Path) -> None:
    data = write_data("ner", tmp_path)
    line = arguments.format(d=data, t=tmp_path, m=tiny_folder)
    result = cli(*line.split())
    assert result.code == 2
    assert message in result.err
    assert result.out == ""
    assert not (tmp_path / "o").exists()


def test_bad_files_end_with_one_line(cli: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.conll"
    bad.write_text("a O\nb\n")
    result = cli("train", "ner", bad, "--no-elmo", "-o", tmp_path / "out")
    assert result.code == 1
    assert "bad.conll:2: 1 columns, expected 2" in result.err
    assert not (tmp_path / "out").exists()


def test_how_the_bilm_computes(cli: Any, tiny_folder: Path, tmp_path: Path) -> None:
    data, out = write_data("ner", tmp_path), tmp_path / "out"
    train = ["train", "ner", data, "--model", tiny_folder, "-o", out, *settings("ner")]
    result = cli(*train, "--precision", "int8")
    assert result.code == 0, result.err
    assert json.loads((out / "checkpoint" / "task.json").read_text())["precision"] == "int8"
    # The biLM may be named: the folder may lie without it.
    use = ["predict", out]
    alone = cli(*use, stdin=PLAIN["ner"])
    shutil.rmtree(out / "checkpoint" / "elmo")
    refused = cli(*use, stdin=PLAIN["ner"])
    assert refused.code == 2
    assert "another biLM" in refused.err
    other = cli(*use, "--model", tiny_folder, stdin=PLAIN["ner"])
    assert "trained with a biLM that computes in int8, not float32; load it with" in other.err
    named = cli(*use, "--model", tiny_folder, "--precision", "int8", stdin=PLAIN["ner"])
    assert named.code == 0, named.err
    assert named.out == alone.out


def test_a_run_is_replaced_if_asked(cli: Any, tmp_path: Path) -> None:
    data, out = write_data("ner", tmp_path), tmp_path / "out"
    train = ["train", "ner", data, "--no-elmo", "-o", out, *settings("ner")]
    assert cli(*train).code == 0
    assert cli(*train, "--set", "model.dropout=0.4").code == 1
    result = cli(*train, "--set", "model.dropout=0.4", "--force")
    assert result.code == 0, result.err
    assert "no development data" in result.out
    assert f"the model is in {out}" in result.err
    (out / "recipe.json").unlink()
    (out / "mine.txt").write_text("not a run any more")
    cli(*train, "--force")
    assert (out / "mine.txt").exists()


def test_a_folder_of_seeds_is_no_model(cli: Any, tmp_path: Path) -> None:
    data, out = write_data("ner", tmp_path), tmp_path / "out"
    train = ["train", "ner", data, "--no-elmo", "-o", out, *settings("ner")]
    assert cli(*train, "--seeds", 2).code == 0
    result = cli("evaluate", out, data)
    assert result.code == 1
    assert f"holds several runs; name one, such as {out / 'seed-0'}" in result.err
    assert "holds several runs; name one" in cli("info", out).err
    refused = cli(*train, "--force")
    assert (refused.code, "several seeds; use another folder" in refused.err) == (2, True)
    single = [out / "seed-0" if part == out else part for part in train]
    refused = cli(*single, "--seeds", 2)
    assert (refused.code, "one seed; use another folder" in refused.err) == (2, True)


def test_the_report_says_what_was_scored(cli: Any, tmp_path: Path) -> None:
    data, out = write_data("ner", tmp_path), tmp_path / "out"
    train = ["train", "ner", data, "--dev", data, "--no-elmo", "-o", out]
    first = cli(*train, *settings("ner"))
    assert "score: of the best epoch on development data" in first.out
    assert "settings: " in first.out
    tested = cli(*train, *settings("ner"), "--test", data, "--resume").out
    assert f"scored on: {data}" in tested
    assert "f1 by epoch" in tested
    assert f"scored on: {data}" in cli("evaluate", out, data).out


def test_pairs_without_a_tab(cli: Any, tmp_path: Path) -> None:
    for name, message in (("nli", "premise TAB hypothesis"), ("qa", "question TAB paragraph")):
        data, out = write_data(name, tmp_path), tmp_path / f"out-{name}"
        train = ["train", name, data, "--no-elmo", "-o", out, *settings(name)]
        assert cli(*train).code == 0
        predict = ["predict", out]
        result = cli(*predict, stdin=b"a\tb\nno tab\n")
        assert result.code == 1
        assert f"stdin:2: expected {message}" in result.err
        result = cli(*predict, "-f", "jsonl", stdin=b"\na\tb\n \t \n\nc\td\n\n")  # blank: no pairs
        assert (result.code, len(result.records())) == (0, 2)


def test_studies(cli: Any, tiny_folder: Path, tmp_path: Path) -> None:
    data = write_data("ner", tmp_path)
    study = [data, data, "--model", tiny_folder, *settings("ner")]
    result = cli("analyze", "placement", *study, "--runs", tmp_path / "runs", "--json")
    assert result.code == 0, result.err
    assert "input only" in json.loads(result.out)["metrics"]
    assert "2 of 4: input only, seed 0: f1 " in result.err
    trained = tmp_path / "runs" / "input-only-0"
    picture = tmp_path / "mix.svg"
    result = cli("analyze", "mix", trained, "--plot", picture)
    assert result.code == 0, result.err
    assert "layer 1" in result.out
    assert picture.stat().st_size > 1000
    result = cli("analyze", "sample-size", *study, "--shares", "1", "--task", "ner")
    assert result.code == 0, result.err

"""The studies of tasks: what differs, what stays, what the report says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_tasks import QUICK, SIZES, quick_recipe, task_class, write_data

from elmore import Elmo
from elmore.analysis import LayerWeighting, Mixes, Placement, SampleSize
from elmore.analysis.plots import plot_report
from elmore.errors import ConfigError, ElmoreError, InputError, ResumeError
from elmore.report import Report

SETTINGS = {**QUICK, **SIZES["ner"], "schedule.epochs": "2"}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    data = write_data("ner", tmp_path)
    return [data, data]


def trained_settings(folder: Path) -> dict[str, dict[str, Any]]:
    """The section elmo of each run's recipe, by the run's name."""
    return {
        path.parent.name: json.loads(path.read_text())["recipe"]["elmo"]
        for path in folder.glob("*/recipe.json")
    }


def test_layer_weighting(tiny_elmo: Elmo, files: list[Path], tmp_path: Path) -> None:
    study = LayerWeighting(tiny_elmo, settings=SETTINGS, out=tmp_path / "runs", seeds=2)
    report = study.run(files)
    assert list(report.metrics) == ["baseline", "last only", "lambda 1", "lambda 0.001"]
    rows = report.tables["layers"]
    assert [row["seeds"] for row in rows] == [2] * 4
    assert rows[0]["gain"] == 0
    recipes = trained_settings(tmp_path / "runs")
    assert len(recipes) == 8
    assert recipes["last-only-0"]["layers"] == "top"
    assert recipes["lambda-1-1"]["penalty"] == 1.0
    assert recipes["lambda-0.001-0"]["penalty"] == 0.001
    plot_report(report, tmp_path / "x.svg")
    # It resumes: nothing is trained again.
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/log.jsonl")}
    assert study.run(files).to_dict() == report.to_dict()
    logs = {path: path.read_text() for path in before}
    assert all(text.count("heldout") == 2 for text in logs.values())


def test_placement(tiny_elmo: Elmo, files: list[Path], tmp_path: Path) -> None:
    report = Placement(tiny_elmo, settings=SETTINGS, out=tmp_path / "runs").run(files)
    assert list(report.metrics) == ["baseline", "input only", "input and output", "output only"]
    recipes = trained_settings(tmp_path / "runs")
    places = {name: (use["input"], use["output"]) for name, use in recipes.items()}
    assert places["input-only-0"] == (True, False)
    assert places["input-and-output-0"] == (True, True)
    assert places["output-only-0"] == (False, True)
    plot_report(report, tmp_path / "x.png")


def test_runs_of_other_settings_are_refused(
    tiny_elmo: Elmo, files: list[Path], tmp_path: Path
) -> None:
    """A run may resume with another rate, but a study would show old scores as the new ones."""

    def study(**changes: str) -> Report:
        settings = {**SETTINGS, "schedule.epochs": "1", **changes}
        return Placement(tiny_elmo, settings=settings, out=tmp_path / "runs").run(files)

    report = study()
    for changes, message in (
        ({"optimizer.lr": "0.5"}, r"baseline-0' holds a finished run, .* another optimizer\.lr"),
        ({"schedule.epochs": "3"}, r"another schedule\.epochs; train in another folder"),
        ({"model.lstm": "[8]"}, r"model\.lstm=\[12\], not \[8\]"),
    ):
        with pytest.raises(ResumeError, match=message):
            study(**changes)
    # The same settings resume; what was lost is trained again, whenever it logs.
    shutil.rmtree(tmp_path / "runs" / "output-only-0")
    assert study(**{"run.log_steps": "7"}).metrics == report.metrics
    files[0].write_text(files[0].read_text().replace("Paris", "Oslo"))
    with pytest.raises(ResumeError, match="other training data"):
        study()


def test_sample_size(tiny_elmo: Elmo, files: list[Path], tmp_path: Path) -> None:
    study = SampleSize(tiny_elmo, shares=[0.25, 1.0], settings=SETTINGS, seeds=2)
    report = study.run(files)
    rows = report.tables["sample-size"]
    assert [row["examples"] for row in rows] == [2, 8]
    assert [row["baseline sd"] is None for row in rows] == [False, True]  # one seed from 30 % on
    assert set(report.metrics) == {
        "25 % baseline",
        "25 % elmo",
        "100 % baseline",
        "100 % elmo",
    }
    assert len(report.tables["epochs"]) == 2
    assert "the baseline is best after" in report.notes[0]
    plot_report(report, tmp_path / "x.svg")
    for shares in ([], [0.0], [2.0]):
        with pytest.raises(ConfigError, match="shares="):
            SampleSize(tiny_elmo, shares=shares)


def test_small_shares_are_evaluated_rarely(
    tiny_elmo: Elmo, files: list[Path], tmp_path: Path
) -> None:
    files[0].write_text(files[0].read_text() * 5)  # forty sentences, of which 2.5 % are one
    SampleSize(tiny_elmo, shares=[0.025, 0.25], settings=SETTINGS, out=tmp_path / "runs").run(files)
    reports = {
        path.parent.name: json.loads(path.read_text())["tables"]["f1 by epoch"]
        for path in (tmp_path / "runs").glob("*baseline-0/report.json")
    }
    # One per tenth of the data: every four epochs of the one, every epoch of the other.
    assert [row["epoch"] for row in reports["2.5--baseline-0"]] == [4, 8, 12, 16, 20]
    assert [row["epoch"] for row in reports["25--baseline-0"]] == list(range(1, 9))


def test_mixes(tiny_elmo: Elmo, files: list[Path], tmp_path: Path) -> None:
    for seed in range(2):
        recipe = quick_recipe("ner", schedule__epochs="2", elmo__output="true")
        task_class("ner")(tiny_elmo, recipe=recipe, seed=seed).fit(
            files[0], out=tmp_path / f"run{seed}"
        )
    task_class("ner")(None, recipe=quick_recipe("ner", schedule__epochs="1")).fit(
        files[0], out=tmp_path / "baseline"
    )
    report = Mixes().run([tmp_path / "run0", tmp_path / "run1", tmp_path / "baseline"])
    rows = report.tables["mix"]
    assert [(row["place"], row["trainings"]) for row in rows] == [("input", 2), ("output", 2)]
    for row in rows:
        assert row["layer 0"] + row["layer 1"] + row["layer 2"] == pytest.approx(1)
        assert row["range"] > 0
    for name in ("x.svg", "same.svg"):
        plot_report(report, tmp_path / name)
    assert (tmp_path / "x.svg").read_bytes() == (tmp_path / "same.svg").read_bytes()
    for seed in range(2):  # as --seeds leaves them
        (tmp_path / "seeds").mkdir(exist_ok=True)
        (tmp_path / "seeds" / f"seed-{seed}").symlink_to(tmp_path / f"run{seed}")
    assert Mixes().run([tmp_path / "seeds"]).tables["mix"] == rows
    assert Mixes().run([tmp_path / "run0"]).tables["mix"][0]["range"] is None
    assert report.notes[-1].startswith("without a mix, left out: ")
    assert report.notes[-1].endswith("/baseline")
    facts = tmp_path / "run0" / "checkpoint" / "task.json"
    whole = json.loads(facts.read_text())
    for recipe in ([], {}, {"elmo": 3}, {"elmo": {**whole["recipe"]["elmo"], "penalty": "x"}}):
        facts.write_text(json.dumps({**whole, "recipe": recipe}))
        with pytest.raises(ElmoreError, match=r"run0.*(restore|copy a recipe|correct|use)"):
            Mixes().run([tmp_path / "run0"])
    with pytest.raises(InputError, match="none of these tasks has learned a mix"):
        Mixes().run([tmp_path / "baseline"])
    with pytest.raises(InputError, match="tag and classify read all of them side by side"):
        Mixes().run(["pos", "sentiment"])
    with pytest.raises(ConfigError, match="name one or more"):
        Mixes().run([])


def test_mixes_of_one_layer_and_of_other_penalties(
    tiny_elmo: Elmo, files: list[Path], tmp_path: Path
) -> None:
    """What a study of layers leaves: only the same kind is averaged, and a layer keeps its name."""
    folders = {}
    for name, changes in (
        ("top", {"elmo__layers": '"top"'}),
        ("one", {"elmo__penalty": "1.0"}),
        ("small", {"elmo__penalty": "0.001"}),
    ):
        task = task_class("ner")(
            tiny_elmo,
            recipe=quick_recipe("ner", schedule__steps="2", elmo__output="false", **changes),
        )
        folders[name] = tmp_path / name
        report = task.fit(files[0], out=folders[name])
        if name == "top":
            assert "layer 2" in report.tables["mix"][0]
    for order in (("top", "one", "small"), ("small", "one", "top")):
        report = Mixes().run([folders[name] for name in order])
        rows = dict(zip(order, report.tables["mix"], strict=True))
        assert [row["lambda"] for row in rows.values() if row["layer 0"] is not None] == [
            {"one": 1.0, "small": 0.001}[name] for name in order if name != "top"
        ]
        assert [rows["top"][f"layer {k}"] for k in range(3)] == [None, None, 1.0]
        assert set(report.metrics) == {
            "ner input layer 1 of 3, lambda 1",
            "ner input layer 1 of 3, lambda 0.001",
        }
        assert "layer 2" in str(report)
    plot_report(report, tmp_path / "x.svg")


def test_misuse(tiny_elmo: Elmo, files: list[Path]) -> None:
    with pytest.raises(ConfigError, match="takes two files"):
        LayerWeighting(tiny_elmo).run(files[:1])
    for task in ("parsing", "tag", "classify"):
        with pytest.raises(ConfigError, match=f"task='{task}'; use one of ner, "):
            Placement(tiny_elmo, task=task)
    with pytest.raises(ConfigError, match="seeds=0"):
        Placement(tiny_elmo, seeds=0)

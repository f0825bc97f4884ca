"""Trainings of tasks: stopped and gone on with, looked at, ended, repeated, reported."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from small_tasks import NAMES, make, quick_recipe, task_class, write_data

from elmore import Elmo
from elmore.errors import ConfigError, InputError, MissingExtra, ResumeError, Stopped
from elmore.report import Report
from elmore.tasks import ClassifyExample, SentimentExample, TagExample
from elmore.tasks.fitting import over_seeds


@pytest.mark.parametrize("name", NAMES)
def test_stopping_and_resuming_changes_nothing(
    name: str, tiny_elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_data(name, tmp_path)
    changes = {"schedule__epochs": "3", "optimizer__average": "0.9", "elmo__dropout": "0.3"}
    whole = make(name, tiny_elmo, seed=5, **changes)
    report = whole.fit(data, dev=data, out=tmp_path / "whole")
    part = make(name, tiny_elmo, seed=5, **changes)

    def interrupt(line: dict[str, Any]) -> None:
        if line["step"] >= 3:
            signal.raise_signal(signal.SIGTERM)

    short = make(name, tiny_elmo, seed=5, **changes, run__log_steps="1")
    with pytest.raises(Stopped):
        short.fit(data, dev=data, out=tmp_path / "part", progress=interrupt)
    resumed = part.fit(data, dev=data, out=tmp_path / "part", resume=True)
    assert resumed.to_dict() == report.to_dict()
    one, two = whole.network.state_dict(), part.network.state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)
    # A finished run is opened again without a further step.
    again = make(name, tiny_elmo, seed=5, **changes)
    assert (
        again.fit(data, dev=data, out=tmp_path / "part", resume=True).to_dict() == report.to_dict()
    )
    one, two = whole.network.state_dict(), again.network.state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert again.scores == whole.scores
    assert not (tmp_path / "part" / "resume").exists()  # which is as large as several models


@pytest.mark.parametrize("name", NAMES)
def test_a_stopped_training_leaves_its_best_model(
    name: str, tiny_elmo: Elmo, tmp_path: Path
) -> None:
    data, scores = write_data(name, tmp_path), []
    task = make(name, tiny_elmo, schedule__epochs="6")

    def interrupt(line: dict[str, Any]) -> None:
        if "heldout" in line:
            scores.append(line["heldout"][task.metric])
            if len(scores) == 3:
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped):
        task.fit(data, dev=data, out=tmp_path / "run", progress=interrupt, evaluate_epochs=1)
    loaded = task_class(name).load(tmp_path / "run")
    assert loaded.scores == {task.metric: max(scores)}
    assert loaded.evaluate(data).metrics[task.metric] == pytest.approx(max(scores), abs=1e-3)


def test_before_the_first_look_there_is_no_best_model(tmp_path: Path) -> None:
    data = write_data("sentiment", tmp_path)

    def interrupt(line: dict[str, Any]) -> None:
        signal.raise_signal(signal.SIGTERM)

    for dev in (data, None):
        task = make("sentiment", run__log_steps="1")
        out = tmp_path / f"run-{dev is None}"
        with pytest.raises(Stopped):
            task.fit(data, dev=dev, out=out, progress=interrupt)
        assert (out / "checkpoint").exists() == (dev is None)  # then the last weights count


def test_a_score_of_zero_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither patience nor a falling rate ends what has not begun."""
    data = write_data("sentiment", tmp_path)
    scores = iter([0.0, 0.0, 0.0, 0.0, 10.0, 10.0, 10.0, 10.0])
    changes = {"schedule__patience": "2", "schedule__halve_patience": "0", "run__log_steps": "1"}
    task = make("sentiment", **changes)
    monkeypatch.setattr(
        task, "measure", lambda *_: Report(name="x", metrics={"accuracy": next(scores)})
    )
    lines: list[dict[str, Any]] = []
    report = task.fit(data, dev=data, progress=lines.append)
    assert report.measured_on["epochs"] == 7  # best after 5, then two without a better one
    rates = {line["step"]: line["lr"] for line in lines if "lr" in line}
    assert {rate for step, rate in rates.items() if step <= 12} == {0.01}  # two steps an epoch
    assert rates[13] == 0.005


def test_a_run_is_not_overwritten_nor_mixed_with_another(tmp_path: Path) -> None:
    data, out = write_data("sentiment", tmp_path), tmp_path / "run"
    other = tmp_path / "other.txt"
    other.write_text(data.read_text().split("\n")[0] + "\n")
    make("sentiment", schedule__epochs="1").fit(data, dev=data, out=out)
    with pytest.raises(ResumeError, match="--resume"):
        make("sentiment", schedule__epochs="1").fit(data, dev=data, out=out)
    for changes, dev, message in (
        ({"seed": 1, "schedule__epochs": "1"}, data, "seed"),
        ({"model__dim": "8"}, data, r"model\.dim=20, not 8"),
        # Else the best weights of the first evaluation would stay for ever.
        ({"schedule__epochs": "5"}, None, "with other development data"),
        ({"schedule__epochs": "5"}, other, "with other development data"),
        ({"schedule__epochs": "5"}, data, r"finished run, which cannot .* schedule\.epochs"),
    ):
        with pytest.raises(ResumeError, match=message):
            make("sentiment", **changes).fit(data, dev=dev, out=out, resume=True)


def test_several_seeds_are_summed_up() -> None:
    reports = {}
    for seed, score in ((0, 40.0), (1, 60.0)):
        rows = [{"examples": 8, "f1": score, "baseline": 10.0}]
        rows += [{"examples": 4, "f1": 20.0, "baseline": 5.0}] if seed else []
        notes = ["of all", *(["of one"] if seed else [])]
        tables = {"learning curve": rows}
        reports[seed] = Report(name="tag", metrics={"f1": score}, tables=tables, notes=notes)
    report = over_seeds(reports)
    assert report.metrics == {"f1": 50.0, "f1 sd": pytest.approx(200**0.5)}
    assert [row["seed"] for row in report.tables["seeds"]] == [0, 1, "mean", "sd"]
    assert report.notes == ["of all", "seed 1: of one"]
    assert report.tables["learning curve"] == [
        {"examples": 4, "f1": 20.0, "baseline": 5.0},
        {"examples": 8, "f1": 50.0, "baseline": 10.0},
    ]


def test_seeds_differ_and_repeat(tmp_path: Path) -> None:
    data = write_data("sentiment", tmp_path)

    def weights(seed: int) -> Any:
        task = make("sentiment", seed=seed, schedule__epochs="1")
        task.fit(data)
        return task.network.output[1][0].weight.detach()

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_global_random_state_is_left_alone(tmp_path: Path) -> None:
    data = write_data("ner", tmp_path)
    before = torch.get_rng_state()
    make("ner", schedule__epochs="1", model__dropout="0.5").fit(data)
    assert torch.equal(torch.get_rng_state(), before)


def test_few_examples_are_trained_on_for_a_fixed_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tenth of fifty texts cannot choose an epoch; patience would end the run by chance."""
    data = write_data("classify", tmp_path)
    recipe = make("classify", schedule__epochs="0", data__batch_size="0").recipe
    lengths = {n: recipe.fitted(n).schedule.epochs for n in (4, 50, 1999, 14_000, 100_000)}
    assert lengths == {4: 240, 50: 24, 1999: 24, 14_000: 13, 100_000: 6}
    task = make("classify", schedule__epochs="7", schedule__patience="1")
    report = task.fit(data, dev=data, progress=True)
    assert [row["epoch"] for row in report.tables["accuracy by epoch"]] == [7]
    assert "epoch 7: accuracy " in capsys.readouterr().err
    often = make("classify", schedule__epochs="5")
    report = often.fit(data, dev=data, evaluate_epochs=2)
    assert [row["epoch"] for row in report.tables["accuracy by epoch"]] == [2, 4, 5]
    with pytest.raises(ConfigError, match="evaluate_epochs=0"):
        task.fit(data, dev=data, evaluate_epochs=0)


def test_reports_say_what_was_trained(tmp_path: Path) -> None:
    data, vectors = write_data("sentiment", tmp_path), tmp_path / "vectors.txt"
    vectors.write_text("film 0.1 0.2\njoy 0.3 0.4\n")
    recipe = quick_recipe("sentiment", schedule__steps="3")
    task = task_class("sentiment")(None, recipe=recipe, vectors=vectors, seed=4)
    report = task.fit(data, out=tmp_path / "run")
    about = report.measured_on
    assert report.metrics == {}  # without development data the last weights count
    assert about["best epoch"] is None
    assert (about["vectors"], about["seed"]) == (str(vectors), 4)
    assert (about["steps"], about["epochs"]) == (3, 2)  # the second one in part
    loaded = task_class("sentiment").load(tmp_path / "run")
    assert "seed" not in loaded.evaluate(data).measured_on  # the folder does not know it


def test_a_tenth_is_held_out_without_development_data(tmp_path: Path) -> None:
    """The same for all tasks, and the report says so."""
    examples = make("ner").examples(write_data("ner", tmp_path)) * 3
    report = make("ner", schedule__epochs="2").fit(examples)
    assert report.measured_on["development examples"] == 4
    assert report.measured_on["training examples"] == 20
    assert "f1" in report.metrics
    assert any("4 of 24 examples were held out" in note for note in report.notes)
    assert any("the same development data chose the epoch" in note for note in report.notes)


def test_a_second_fit_starts_where_the_first_did(tiny_elmo: Elmo, tmp_path: Path) -> None:
    """Though the first trained the biLM too."""
    data = write_data("ner", tmp_path)
    task = make("ner", tiny_elmo, elmo__trainable="true", schedule__epochs="1")
    weights = []
    for _ in range(2):
        task.fit(data)
        assert task.elmo is not tiny_elmo
        weights.append({n: w.clone() for n, w in task.elmo.engine.bilm.named_parameters()})
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("name", NAMES)
def test_missing_packages_are_named_before_the_training(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make(name, schedule__epochs="1")
    data = write_data(name, tmp_path)

    def missing(module: str) -> Any:
        raise ModuleNotFoundError(name=module.partition(".")[0])

    monkeypatch.setattr("elmore.base.optional.importlib.import_module", missing)
    with pytest.raises(MissingExtra, match=r"elmore\[tasks\]"):
        task.fit(data, dev=data, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_examples_without_a_label_are_refused() -> None:
    bare: dict[str, list[Any]] = {
        "classify": [ClassifyExample((("a",),), "x"), ClassifyExample((("b",),))],
        "tag": [TagExample(("a", "b"), ("X", "Y")), TagExample(("a",))],
        "sentiment": [SentimentExample((("a",),), "neutral"), SentimentExample((("b",),))],
        "nli": [ClassifyExample((("a",), ("b",)), "neutral"), ClassifyExample((("a",), ("b",)))],
    }
    for name, examples in bare.items():
        with pytest.raises(InputError, match=r"no label|1 tokens but 0 tags"):
            make(name, schedule__epochs="1").fit(examples)

"""The live report of a training in Python."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from small_tasks import make, write_data
from small_training import make_sentences, small_recipe, write_text

from elmore import Run, fine_tune, pretrain
from elmore.corpus.prepared import Prepared
from elmore.errors import ConfigError


def train(data: Prepared, out: Path, **options: Any) -> Run:
    return pretrain(data, out, recipe=small_recipe(), **options)


def test_it_says_what_the_command_line_says(
    data: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(data, tmp_path / "run")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert " tokens: held-out perplexity " in shown.err
    assert " tokens: training perplexity " in shown.err


def test_it_can_be_silenced(
    data: Prepared,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train(data, tmp_path / "one", progress=False)
    train(data, tmp_path / "two", progress=lambda line: None)  # somebody else shows it
    monkeypatch.setattr(logging.getLogger("elmore"), "disabled", True)
    train(data, tmp_path / "three")
    assert capsys.readouterr().err == ""


def test_a_bar_in_a_terminal(
    data: Prepared,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    train(data, tmp_path / "run")
    shown = capsys.readouterr().err
    assert "%|" in shown
    assert "held-out" in shown
    assert "100%|" in shown  # although the last batch goes beyond the total
    assert " tokens: " not in shown


def test_a_function_gets_every_line_of_the_log(
    data: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[dict[str, Any]] = []
    run = train(data, tmp_path / "run", progress=lines.append)
    assert capsys.readouterr().err == ""
    plan, *logged = lines  # before the first line: how long it will take
    assert (plan["step"], plan["plan"][:15]) == (0, "plan: 900 token")
    assert [{k: v for k, v in line.items() if k != "total"} for line in logged] == run.log()
    assert all(line["total"] == 900 for line in lines)
    assert any("heldout" in line for line in lines)
    with pytest.raises(ConfigError, match="progress='loud'; use True, False, None or a function"):
        train(data, tmp_path / "other", progress="loud")


def test_fine_tune_reports_too(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [write_text(tmp_path / "text.txt", make_sentences(60))]
    options: dict[str, Any] = {"recipe": small_recipe(), "tokenized": True, "threads": 1}
    lines: list[dict[str, Any]] = []
    fine_tune(tiny_folder, texts, tmp_path / "a", progress=lines.append, **options)
    # What it starts from, before the first step; then how long it will take.
    assert re.search(r"fine-tuning .* on \d+ tokens: .* tokens to read", lines[0]["plan"])
    assert lines[0]["step"] == lines[1]["step"] == 0
    assert lines[1]["plan"].startswith("about ")
    assert not any("plan" in line for line in lines[2:])
    fine_tune(tiny_folder, texts, tmp_path / "b", progress=False, **options)
    assert capsys.readouterr().err == ""
    fine_tune(tiny_folder, texts, tmp_path / "c", **options)
    assert capsys.readouterr().err.startswith("fine-tuning ")


def test_a_task_reports_its_evaluations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, data = make("ner"), write_data("ner", tmp_path)
    task.fit(data, dev=data)
    assert f"epoch 1: {task.metric} " in capsys.readouterr().err
    lines: list[dict[str, Any]] = []
    task.fit(data, dev=data, progress=lines.append)
    task.fit(data, dev=data, progress=False)
    assert capsys.readouterr().err == ""
    assert any("heldout" in line for line in lines)

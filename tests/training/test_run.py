"""The folder of a run: what it remembers, refuses and forgets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_training import small_recipe

from elmore.errors import FormatError, ResumeError
from elmore.training.run import Run

FACTS: dict[str, Any] = {"seed": 0, "data": "abc", "processes": 1}


def made(folder: Path) -> Run:
    run = Run(folder / "run")
    run.start(small_recipe(), FACTS)
    return run


def test_a_run_knows_its_recipe(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    assert not run.exists()
    run = made(tmp_path)
    assert run.exists()
    assert Run.open(run.path).recipe == small_recipe()
    with pytest.raises(ResumeError, match="holds no training run"):
        Run.open(tmp_path)
    with pytest.raises(ResumeError, match="no checkpoint yet"):
        run.elmo()


def test_the_same_again_is_fine_and_the_schedule_may_change(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.check(small_recipe(), FACTS)
    other = small_recipe(schedule__tokens=5, schedule__decay="cosine", run__log_steps=7)
    run.check(other, FACTS)
    assert run.recipe == other


@pytest.mark.parametrize(
    ("settings", "facts", "message"),
    [
        ({"model.dim": 13}, {}, r"model\.dim=12, not 13"),
        ({"model.filters": "[[1, 4]]"}, {}, r"model\.filters="),
        ({"data.regime": "stream"}, {}, r"data\.regime='sentences', not 'stream'"),
        ({"loss.dropout": 0.2}, {}, r"loss\.dropout=0\.1, not 0\.2"),
        ({"optimizer.name": "adagrad"}, {}, r"optimizer\.name='adam', not 'adagrad'"),
        ({"run.autocast": "true"}, {}, r"run\.autocast=False, not True"),
        ({}, {"seed": 1}, "seed='0', not '1'"),
        ({}, {"data": "abd"}, "with other training data"),
        ({}, {"processes": 2}, "processes='1', not '2'"),
    ],
)
def test_another_training_is_refused(
    settings: dict[str, Any], facts: dict[str, Any], message: str, tmp_path: Path
) -> None:
    run = made(tmp_path)
    before = (run.path / "recipe.json").read_bytes()
    with pytest.raises(ResumeError, match=message) as caught:
        run.check(small_recipe(settings), {**FACTS, **facts})
    assert "\n" not in str(caught.value)
    assert "another folder" in str(caught.value)
    assert (run.path / "recipe.json").read_bytes() == before


def test_damaged_facts(tmp_path: Path) -> None:
    run = made(tmp_path)
    path = run.path / "recipe.json"
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({**whole, "version": 99}))
    with pytest.raises(FormatError, match="upgrade elmore"):
        run.check(small_recipe(), FACTS)
    path.write_text(json.dumps({"x": 1}))
    with pytest.raises(FormatError, match="does not belong to a training run"):
        _ = run.recipe
    for recipe in (5, {"optimizer": 5}):
        path.write_text(json.dumps({**whole, "recipe": recipe}))
        with pytest.raises(FormatError, match="has no recipe"):
            run.check(small_recipe(), FACTS)
    path.write_text("{")
    with pytest.raises(FormatError, match="JSON"):
        _ = run.recipe


# The log --------------------------------------------------------------------------------------


def test_the_log_is_cut_where_a_run_goes_on(tmp_path: Path) -> None:
    run = made(tmp_path)
    assert run.log() == []
    for step in (1, 2, 3, 3, 4):
        run.append({"step": step})
    with run.log_path.open("a") as stream:
        stream.write('{"step": 5, "lo')  # torn by a kill
    run.forget_after(3)
    assert [line["step"] for line in run.log()] == [1, 2, 3, 3]
    run.append({"step": 4})
    assert [line["step"] for line in run.log()] == [1, 2, 3, 3, 4]
    run.forget_after(-1)
    assert run.log() == []


@pytest.mark.parametrize(
    "line", [b'{"step": 2, "lo', b"[2]", b"{}", b'{"step": "2"}', b"\xff", b"[" * 10**5]
)
def test_a_damaged_log_is_named_with_its_line(line: bytes, tmp_path: Path) -> None:
    run = made(tmp_path)
    run.append({"step": 1})
    with run.log_path.open("ab") as stream:
        stream.write(line + b"\n")
    run.append({"step": 3})
    for read in (run.log, lambda: run.forget_after(1)):
        with pytest.raises(FormatError, match=r"log\.jsonl:2: .*remove the line") as caught:
            read()
        assert "\n" not in str(caught.value)
    assert len(run.log_path.read_bytes().splitlines()) == 3

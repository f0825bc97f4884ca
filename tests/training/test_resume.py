"""States on disk, and runs that go on to the bit: after a signal, after kill -9, within a save."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from small_models import posix
from small_training import digest, small_recipe

from elmore.base.io import sha256_file
from elmore.base.json import json_digest
from elmore.corpus.prepared import Prepared
from elmore.errors import ResumeError, Stopped
from elmore.training.bilm.pretrain import pretrain
from elmore.training.bilm.recipe import Recipe
from elmore.training.run import Run, load_state, save_state

REGIMES: dict[str, dict[str, object]] = {
    "sentences": {},
    "stream": {"data.regime": "stream", "optimizer.name": "adagrad", "loss.shared": "none"},
    "words, tied, two batches a step": {
        "schedule.average": 0.9,
        "model.tokens": "words",
        "model.tied_softmax": "true",
        "optimizer.accumulate": 2,
        "optimizer.weight_decay": 0.01,
    },
    "full, one direction, own alphabet": {
        "loss.kind": "full",
        "model.bidirectional": "false",
        "model.alphabet": "characters",
    },
    "long windows": {"data.long_share": 0.4, "data.long_tokens": 20},
    "muon": {"optimizer.name": "muon", "optimizer.weight_decay": 0.01, "run.autocast": "true"},
}
CARRYING = ("stream", "long windows")


# States ---------------------------------------------------------------------------------------


def tensors(value: float) -> dict[str, dict[str, torch.Tensor]]:
    numbers = {"n": torch.tensor(7), "|x": torch.zeros(0)}
    return {"part": {"a/b": torch.full((2, 3), value)}, "other": numbers}


def test_the_two_newest_states_are_kept(tmp_path: Path) -> None:
    assert load_state(tmp_path / "none") is None
    for step in (9, 10, 11, 100):
        save_state(tmp_path / "s", step, tensors(step), {"seen": step * 2})
    names = sorted(path.name for path in (tmp_path / "s").iterdir())
    assert names == ["step-0000000011", "step-0000000100"]
    found = load_state(tmp_path / "s")
    assert found[1]["step"] == 100
    assert found[1]["seen"] == 200
    assert found[0].keys() == tensors(100).keys()
    for part, named in tensors(100).items():
        for name, tensor in named.items():
            assert torch.equal(found[0][part][name], tensor)
            assert found[0][part][name].dtype == tensor.dtype


@pytest.mark.parametrize("part", ["state.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "another value", "no object"])
def test_a_damaged_state_gives_way_to_the_one_before(
    part: str, damage: str, tmp_path: Path
) -> None:
    for step in (1, 2):
        save_state(tmp_path, step, tensors(step), {"seen": step})

    def spoil(step: int) -> None:
        path = tmp_path / f"step-{step:010d}" / part
        whole = path.read_bytes()
        if damage == "gone":
            path.unlink()
        elif damage == "another value":
            path.write_bytes(whole.replace(b'"seen"', b'"sawn"').replace(b"I64", b"F64"))
        elif damage == "no object":
            path.write_bytes(b"[]")
        elif damage == "cut":
            path.write_bytes(whole[: len(whole) // 2])
        else:
            path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 64]) + whole[-8:])

    spoil(2)
    found = load_state(tmp_path)
    assert found[1]["step"] == 1
    spoil(1)
    with pytest.raises(ResumeError, match=rf"no state in .* can be read \(.*{part}") as caught:
        load_state(tmp_path)
    assert "\n" not in str(caught.value)


# Going on -------------------------------------------------------------------------------------


def recipe_of(name: str) -> Recipe:
    """A run of one or two epochs that saves when it must."""
    settings = {"schedule.tokens": 700, "run.evaluate_tokens": 250, "run.save_minutes": 1000}
    return small_recipe({**settings, **REGIMES[name]})


@pytest.fixture(scope="module")
def whole(data: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The uninterrupted run of each regime."""
    made: dict[str, Path] = {}

    def run(name: str) -> Path:
        if name not in made:
            out = tmp_path_factory.mktemp("whole") / "run"
            pretrain(data, out, recipe=recipe_of(name), threads=1, seed=3)
            made[name] = out
        return made[name]

    return run


def lines(run: Path) -> list[dict[str, Any]]:
    """The log without what the clock decides."""
    return [{k: v for k, v in line.items() if k != "tokens_per_s"} for line in Run(run).log()]


def steps_of(run: Path) -> int:
    return int(sorted((run / "resume").iterdir())[-1].name[5:])


@pytest.mark.parametrize("name", REGIMES)
def test_stopped_by_a_signal(
    name: str, data: Prepared, whole: Callable[[str], Path], tmp_path: Path
) -> None:
    expected, out = whole(name), tmp_path / "run"
    count = steps_of(expected)
    assert count >= 8
    at = [2, count // 2, count - 1]

    def ask(line: dict[str, Any]) -> None:
        if line["step"] == at[0] and "loss" in line:
            signal.raise_signal(signal.SIGTERM)

    recipe = recipe_of(name)
    for _ in range(3):
        with pytest.raises(Stopped, match=f"SIGTERM after step {at[0]}"):
            pretrain(data, out, recipe=recipe, threads=1, seed=3, resume=True, progress=ask)
        assert steps_of(out) == at.pop(0)
    pretrain(data, out, recipe=recipe, threads=1, seed=3, resume=True)
    assert digest(out) == digest(expected)
    assert lines(out) == lines(expected)
    best = "best/model.safetensors"
    assert (out / best).read_bytes() == (expected / best).read_bytes()


@pytest.mark.parametrize(
    ("key", "value"),
    [("step", {}), ("seen", "many"), ("cursor", [[]]), ("cursor", {"epoch": "x"}), ("tensor", 0)],
)
def test_an_edited_state_is_refused_in_one_line(
    key: str, value: object, data: Prepared, whole: Callable[[str], Path], tmp_path: Path
) -> None:
    out = Path(shutil.copytree(whole("sentences"), tmp_path / "run"))
    [state, *_] = sorted((out / "resume").glob("step-*"), reverse=True)
    facts = json.loads((state / "state.json").read_text())
    if key == "tensor":
        (state / "state.safetensors").write_bytes(safetensors.numpy.save({"x": np.ones(3)}))
        facts["sha256"] = sha256_file(state / "state.safetensors")
    else:
        facts[key] = value
    del facts["digest"]
    facts["digest"] = json_digest(facts)
    (state / "state.json").write_text(json.dumps(facts))
    with pytest.raises(ResumeError, match="does not fit the run") as caught:
        pretrain(data, out, recipe=recipe_of("sentences"), threads=1, seed=3, resume=True)
    assert "\n" not in str(caught.value)


def test_a_finished_run_keeps_its_weights_once_and_can_be_trained_longer(
    data: Prepared, tmp_path: Path
) -> None:
    longer = {"schedule.tokens": 1400, "optimizer.lr": 1e-12, "schedule.warmup_tokens": 0}
    for name in ("sentences", "long windows", "words, tied, two batches a step"):
        out = tmp_path / name
        pretrain(data, out, recipe=recipe_of(name), threads=1, seed=3)
        # What resuming alone needs is several times as large as the model.
        [state] = (out / "resume").iterdir()
        model = (out / "checkpoint/model.safetensors").stat().st_size
        assert (state / "state.safetensors").stat().st_size < model / 4
        before, log = Run(out).elmo(best=False).checkpoint, lines(out)
        recipe = recipe_of(name).changed({k: str(v) for k, v in longer.items()})
        after = pretrain(data, out, recipe=recipe, threads=1, seed=3, resume=True)
        assert lines(out)[: len(log)] == log
        assert lines(out)[-1]["tokens"] >= 1400
        new = dict(after.elmo(best=False).checkpoint.checked_weights())
        for key, weight in before.checked_weights():
            np.testing.assert_allclose(np.array(new[key]), np.array(weight), atol=1e-6)


def test_a_run_that_patience_ended_can_resume_to_the_bit(data: Prepared, tmp_path: Path) -> None:
    patient = recipe_of("sentences").changed({"optimizer.lr": "0.3", "run.evaluate_tokens": "50"})
    hasty = patient.changed({"run.patience": "1"})
    pretrain(data, tmp_path / "whole", recipe=patient, threads=1, seed=3)
    pretrain(data, tmp_path / "parts", recipe=hasty, threads=1, seed=3)
    assert lines(tmp_path / "parts") != lines(tmp_path / "whole")
    pretrain(data, tmp_path / "parts", recipe=patient, threads=1, seed=3, resume=True)
    assert digest(tmp_path / "parts") == digest(tmp_path / "whole")


# One process that imports torch once and forks a training for every kill: each child dies by
# SIGKILL at its step, or in the middle of a save. The last one comes to the end.
KILLS = """
import json, os, shutil, signal, sys, traceback, types
sys.path.insert(0, sys.argv[1])
data, out, settings, plan = sys.argv[2], sys.argv[3], *map(json.loads, sys.argv[4:])
from small_training import small_recipe
from elmore.training import run as states
from elmore.training.bilm.pretrain import pretrain
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
for where, step in [*plan, [None, None]]:
    child = os.fork()
    if child == 0:
        def report(line):
            if where == "step" and line["step"] >= step:
                die()
        def dying(*args, **options):
            if where == "save" and int(args[0].parent.name.split("-")[1].split(".")[0]) >= step:
                die()
            return hashed(*args, **options)
        hashed, states.sha256_file = states.sha256_file, dying
        def removing(path, ignore_errors):
            if where == "rotation" and int(path.name.split("-")[1]) >= step - 2:
                die()
            shutil.rmtree(path, ignore_errors)
        states.shutil = types.SimpleNamespace(rmtree=removing)
        try:
            pretrain(data, out, recipe=small_recipe(settings), seed=3, threads=1, resume=True,
                     progress=report)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(json.dumps([where, os.waitstatus_to_exitcode(status)]), flush=True)
"""


@posix
@pytest.mark.parametrize("name", ["sentences", "stream"])
def test_killed(name: str, data: Prepared, whole: Callable[[str], Path], tmp_path: Path) -> None:
    expected, out = whole(name), tmp_path / "run"
    count = steps_of(expected)
    settings = {**REGIMES[name], "schedule.tokens": 700, "run.evaluate_tokens": 250}
    plan = [["step", 3], ["save", count // 2], ["rotation", count // 2 + 2], ["step", count - 1]]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            KILLS,
            str(Path(__file__).parents[1]),
            str(data.folder),
            str(out),
            json.dumps(settings),
            json.dumps(plan),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert [end[1] for end in ends] == [-9] * len(plan) + [0], done.stderr
    assert digest(out) == digest(expected)
    assert lines(out) == lines(expected)
    assert not [path for path in out.rglob("*") if ".partial" in path.name]

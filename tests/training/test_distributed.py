"""Two processes do together what one does alone."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_training import digest, small_recipe

from elmore.corpus.prepared import Prepared
from elmore.errors import ConfigError
from elmore.nn.softmax import RowGradient
from elmore.training import distributed
from elmore.training.bilm.objective import _dropped
from elmore.training.bilm.pretrain import pretrain
from elmore.training.distributed import Group, join_group
from elmore.training.run import Run

STEPS = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
data, out, settings, stop = sys.argv[2], sys.argv[3], *map(json.loads, sys.argv[4:])
from small_training import small_recipe
from elmore.errors import ElmoreError
from elmore.errors import Stopped
from elmore.training.bilm.pretrain import pretrain
def report(line):
    if stop and line["step"] == stop:
        signal.raise_signal(signal.SIGTERM)
try:
    recipe = small_recipe(settings)
    pretrain(data, out, recipe=recipe, threads=1, seed=3, resume=True, progress=report)
except Stopped:
    sys.exit(7)
except ElmoreError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
"""


FINE_TUNE = """
import json, sys
sys.path.insert(0, sys.argv[1])
model, out, text = sys.argv[2], sys.argv[3], json.loads(sys.argv[4])["text"]
from small_training import small_recipe
from elmore.errors import ElmoreError
from elmore.training.bilm.fine_tune import fine_tune
try:
    fine_tune(model, [text], out, recipe=small_recipe(), tokenized=True, threads=1, progress=False)
except ElmoreError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
"""


def together(
    data: Path,
    out: Path,
    settings: dict[str, Any],
    *,
    stop: int = 0,
    world: int = 2,
    script: str = STEPS,
) -> list[subprocess.CompletedProcess[str]]:
    """Start processes as torchrun does, without its watchman."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-c", script, str(Path(__file__).parents[1])]
    command += [str(data), str(out), json.dumps(settings), json.dumps(stop)]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
    processes = [
        subprocess.Popen(
            command,
            env={**os.environ, **place, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    done = []
    try:
        for process in processes:
            out_text, err_text = process.communicate(timeout=240)
            done.append(
                subprocess.CompletedProcess(command, process.returncode, out_text, err_text)
            )
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
    return done


def difference(one: Path, two: Path) -> float:
    """Largest difference of all weights, in units of each weight's largest value."""
    worst = 0.0
    weights = [Run(run).elmo(best=False).checkpoint for run in (one, two)]
    others = dict(weights[1].checked_weights())
    pairs = [(array, others[name]) for name, array in weights[0].checked_weights()]
    pairs += zip(weights[0].softmax[:2], weights[1].softmax[:2], strict=True)
    for array, other in pairs:
        array, other = np.array(array), np.array(other)
        worst = max(worst, float(np.abs(array - other).max() / max(np.abs(array).max(), 1e-3)))
    return worst


REGIMES: dict[str, dict[str, Any]] = {
    # A budget for one or two sentences: often there is no row for the second process.
    "sentences": {"data.batch_tokens": 20, "optimizer.name": "adagrad", "optimizer.lr": 0.1},
    "stream": {
        "data.regime": "stream",
        "loss.shared": "none",
        "loss.times_unroll": "true",
        "optimizer.name": "adagrad",
        "optimizer.lr": 0.1,
    },
    "full": {"loss.kind": "full", "optimizer.name": "adam"},
    "muon": {"optimizer.name": "muon", "data.long_share": 0.3, "data.long_tokens": 20},
    "frozen": {"schedule.frozen_tokens": 400, "optimizer.name": "adagrad"},
    "tied": {"model.tokens": "words", "model.tied_softmax": "true", "optimizer.accumulate": 2},
}


def compare(name: str, tokens: int, data: Prepared, folder: Path) -> tuple[float, int]:
    settings = {
        **REGIMES[name],
        "loss.dropout": "0.0",
        "schedule.tokens": tokens,
        "run.save_minutes": 1000,
        "run.evaluate_tokens": 0,
    }
    rows = {"data.batch_rows": 4} if name in ("stream", "muon") else {}
    alone, both = folder / "one", folder / "two"
    pretrain(data, alone, recipe=small_recipe({**settings, **rows}), threads=1, seed=3)
    rows = {"data.batch_rows": 2} if name in ("stream", "muon") else {}
    for process in together(data.folder, both, {**settings, **rows}):
        assert process.returncode == 0, process.stderr
    losses = [[line["loss"] for line in Run(run).log() if "loss" in line] for run in (alone, both)]
    for a, b in zip(*losses, strict=True):
        assert b == pytest.approx(a, rel=1e-4)
    heldout = [Run(run).log()[-1]["heldout"] for run in (alone, both)]
    assert heldout[1] == pytest.approx(heldout[0], rel=1e-4)
    return difference(alone, both), len(losses[0])


def test_five_steps(data: Prepared, tmp_path: Path) -> None:
    gap, steps = compare("sentences", 80, data, tmp_path)
    assert steps >= 5
    assert gap < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", REGIMES)
def test_fifty_steps(name: str, data: Prepared, tmp_path: Path) -> None:
    tokens = {
        "sentences": 850,
        "stream": 1000,
        "full": 2300,
        "muon": 2300,
        "frozen": 2300,
        "tied": 4600,
    }[name]
    gap, steps = compare(name, tokens, data, tmp_path)
    assert steps >= 50
    # Adam divides small gradients by themselves: their noise is not small.
    assert gap < (1e-3 if name in ("full", "muon", "tied") else 1e-4)


@pytest.mark.slow
def test_two_processes_go_on_to_the_bit_and_not_as_one(data: Prepared, tmp_path: Path) -> None:
    settings = {
        **REGIMES["stream"],
        "data.batch_rows": 2,
        "schedule.tokens": 200,
        "run.save_minutes": 1000,
        "run.evaluate_tokens": 0,
    }
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for process in together(data.folder, whole, settings):
        assert process.returncode == 0, process.stderr
    for process in together(data.folder, parts, settings, stop=4):
        assert process.returncode == 7, process.stderr
    assert Run(parts).log()[-1]["step"] == 4
    # Fewer processes are refused by a line that names the number, and nothing changes.
    before = sorted((p, p.read_bytes()) for p in parts.rglob("*.safetensors"))
    [refused] = together(data.folder, parts, settings, world=1)
    assert refused.returncode == 1
    assert re.search(r"trained with processes='2', not '1'", refused.stderr)
    assert refused.stderr.count("\n") == 1
    assert sorted((p, p.read_bytes()) for p in parts.rglob("*.safetensors")) == before
    for process in together(data.folder, parts, settings):
        assert process.returncode == 0, process.stderr
    assert digest(parts) == digest(whole)


def test_one_process_prepares_the_text_of_a_fine_tuning(data: Prepared, tmp_path: Path) -> None:
    model = pretrain(data, tmp_path / "model", recipe=small_recipe(), threads=1).checkpoint_path
    text = {"text": str(data.folder.parent / "text.txt")}
    for process in together(model, tmp_path / "run", text, script=FINE_TUNE):
        assert process.returncode == 0, process.stderr
    assert Run(tmp_path / "run").elmo().config == Run(tmp_path / "model").elmo().config
    # If the first one cannot, all of them end at once.
    done = together(model, tmp_path / "none", {"text": "nowhere.txt"}, script=FINE_TUNE)
    assert [process.returncode for process in done] == [1, 1]
    assert "'nowhere.txt' does not exist" in done[0].stderr
    assert "process 0 failed" in done[1].stderr


# Alone ----------------------------------------------------------------------------------------


def test_frozen_weights_have_no_gradients_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "all_reduce", None)  # must not be called
    Group(0, 2).sum_dense([])


def test_joining(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert (join_group().rank, join_group().world) == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ConfigError, match="start with torchrun"):
        join_group()


# GPUs, of which there are none here ------------------------------------------------------------


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The second of two processes on a machine with two GPUs; what torch is asked for."""
    asked: list[Any] = []
    environment = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    backends: list[str] = []

    def start(backend: str) -> None:
        asked.append(backend)
        backends.append(backend)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", asked.append)
    monkeypatch.setattr(distributed, "find_device", lambda name: name)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: bool(backends))
    monkeypatch.setattr(torch.distributed, "init_process_group", start)
    monkeypatch.setattr(torch.distributed, "get_backend_config", lambda: backends[0])
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    return asked


def test_each_process_has_the_gpu_of_its_number(two_gpus: list[Any]) -> None:
    group = join_group("cuda")
    assert (group.rank, group.world, group.device) == (1, 2, "cuda:1")
    # First the GPU: nccl takes the current one.
    assert two_gpus == ["cuda:1", "cpu:gloo,cuda:nccl"]


def test_devices_that_several_processes_cannot_have(
    two_gpus: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for device, message in {
        "cuda:0": "device='cuda:0' for several processes; use 'cuda'",
        "mps": "device='mps' for several processes; use 'cuda'",
    }.items():
        with pytest.raises(ConfigError, match=message):
            join_group(device)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ConfigError, match="process 2 of this machine has no GPU, there are 2"):
        join_group("cuda")
    monkeypatch.setenv("LOCAL_RANK", "0")
    torch.distributed.init_process_group("cuda:nccl")  # by a caller of pretrain
    with pytest.raises(ConfigError, match="does not serve tensors on cpu; create it with"):
        join_group("cuda")


def test_alone_on_a_device_that_cannot_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(ConfigError, match="embeds but cannot train; use cpu or cuda"):
        join_group("mps")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="use device='cpu'"):
            join_group("cuda")


def test_tensors_travel_from_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device `meta`, which knows shapes only, is the GPU: its numbers cannot be read."""
    travelled: list[str] = []

    def all_gather(everyone: list[torch.Tensor], tensor: torch.Tensor) -> None:
        assert {one.device for one in everyone} == {tensor.device}
        travelled.append(tensor.device.type)
        for one in everyone:
            one.copy_(tensor)

    monkeypatch.setattr(
        torch.distributed, "all_reduce", lambda tensor: travelled.append(tensor.device.type)
    )
    monkeypatch.setattr(torch.distributed, "all_gather", all_gather)
    monkeypatch.setattr(torch.distributed, "barrier", None)  # nccl's barrier needs a device
    group = Group(0, 2, device="meta")
    gradient = torch.empty(3, 4, device="meta")
    group.sum_dense([gradient, gradient])
    assert group.gather_tensors(gradient)[1].device.type == "meta"
    ids = torch.empty(3, dtype=torch.long, device="meta")
    rows = group.gather_rows(RowGradient(ids, gradient, gradient[:, 0]))
    assert {tensor.device.type for tensor in rows[1]} == {"meta"}
    group.barrier()
    # How many rows there are is asked on the CPU; the rows stay on their device.
    assert travelled == ["meta", "meta", "cpu", "meta", "cpu"]


def test_dropout_is_drawn_where_its_generator_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU refuses a generator of the CPU; `meta` does not, so the refusal is put in."""
    real = torch.Tensor.bernoulli_

    def strict(mask: torch.Tensor, p: float, *, generator: torch.Generator) -> torch.Tensor:
        assert mask.device == generator.device
        return real(mask, p, generator=generator)

    monkeypatch.setattr(torch.Tensor, "bernoulli_", strict)
    generator = torch.Generator().manual_seed(1)
    values = torch.empty(4, 5, device="meta")
    assert _dropped(values, share=0.5, generator=generator).device.type == "meta"

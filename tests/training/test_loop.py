"""The loop around the steps: log, evaluations, saves, ends, and what goes wrong."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_training import small_data, small_recipe

from elmore.errors import ElmoreError, Stopped
from elmore.training.bilm import trainer as trainer_module
from elmore.training.bilm.pretrain import pretrain
from elmore.training.loop import StepReport, train
from elmore.training.run import Run, load_state

# A line for every step; no saves and evaluations but the last.
QUIET = {"log_steps": 1, "save_minutes": 1e6, "evaluate_every": 0, "patience": 0}


class Fake:
    """Something that trains: ten tokens a step, a given loss at each evaluation."""

    def __init__(self, total: int = 100, heldout: tuple[float, ...] = ()) -> None:
        self.step_number = self.seen = 0
        self.best, self.evaluations_since_best = -math.inf, 0
        self._total, self._heldout = total, list(heldout)
        self.events: list[tuple[str, int]] = []
        self.after_step: Callable[[int], StepReport | None] = lambda step: None

    def finished(self) -> bool:
        return self.seen >= self._total

    def total(self) -> int:
        return self._total

    def step(self) -> StepReport:
        self.step_number += 1
        self.seen += 10
        special = self.after_step(self.step_number)
        return special or StepReport(
            {"forward": float(self.step_number), "backward": 2.0}, 0.1, 3.0
        )

    def evaluate(self) -> dict[str, float] | None:
        self.events.append(("evaluation", self.step_number))
        return {"loss": self._heldout.pop(0)} if self._heldout else None

    def save_state(self) -> None:
        self.events.append(("state", self.step_number))

    def save_model(self, *, best: bool) -> None:
        self.events.append(("best" if best else "model", self.step_number))


def go(fake: Fake, folder: Path, **changes: Any) -> Run:
    run = Run(folder)
    train(fake, run, **{**QUIET, **changes})
    return run


def test_a_run_ends_with_an_evaluation_a_model_and_a_state(tmp_path: Path) -> None:
    fake = Fake(heldout=(5.0,))
    go(fake, tmp_path)
    assert fake.events == [("evaluation", 10), ("best", 10), ("model", 10), ("state", 10)]


def test_log_lines_are_means_since_the_last(tmp_path: Path) -> None:
    fake = Fake(heldout=(5.0,))
    lines = go(fake, tmp_path, log_steps=4).log()
    assert [line["step"] for line in lines] == [4, 8, 10]
    assert [line["tokens"] for line in lines] == [40, 80, 100]
    assert lines[0]["loss"] == {"forward": 2.5, "backward": 2.0}
    assert lines[1]["loss"]["forward"] == 6.5
    assert (lines[0]["lr"], lines[0]["norm"]) == (0.1, 3.0)
    assert lines[0]["tokens_per_s"] > 0
    assert lines[2]["heldout"] == {"loss": 5.0}


def test_evaluations_fall_on_multiples_and_the_best_is_kept(tmp_path: Path) -> None:
    fake = Fake(heldout=(5.0, 4.0, 4.5, 4.2))
    go(fake, tmp_path, evaluate_every=30)
    evaluations = [step for event, step in fake.events if event == "evaluation"]
    assert evaluations == [3, 6, 9, 10]
    assert [step for event, step in fake.events if event == "best"] == [3, 6]
    assert (fake.best, fake.evaluations_since_best) == (-4.0, 2)


def test_patience_ends_it(tmp_path: Path) -> None:
    fake = Fake(total=10**6, heldout=(5.0, 4.0, 4.0, 4.1, 1.0))
    go(fake, tmp_path, evaluate_every=20, patience=2)
    # equal is not better; the evaluation at the end is the one that ended it
    assert [event for event in fake.events if event[0] == "evaluation"] == [
        ("evaluation", 2), ("evaluation", 4), ("evaluation", 6), ("evaluation", 8),
    ]  # fmt: skip
    assert fake.events[-2:] == [("model", 8), ("state", 8)]
    assert fake.step_number == 8


def test_resuming_what_patience_ended_does_nothing(tmp_path: Path) -> None:
    fake = Fake(total=10**6, heldout=(5.0, 6.0, 6.0, 6.0))
    run = go(fake, tmp_path, evaluate_every=20, patience=2)
    before = run.log_path.read_bytes(), list(fake.events)
    go(fake, tmp_path, evaluate_every=20, patience=2)
    assert (run.log_path.read_bytes(), fake.events) == before
    go(fake, tmp_path, evaluate_every=20, patience=3)  # more patience continues it
    assert fake.step_number == 8


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan)])
def test_what_is_no_number_stops_it(loss: float, norm: float, tmp_path: Path) -> None:
    fake = Fake()
    fake.after_step = lambda step: StepReport({"forward": loss}, 0.1, norm) if step == 3 else None
    with pytest.raises(ElmoreError, match=r"step 3: forward is .*lower optimizer\.lr") as caught:
        go(fake, tmp_path, save_minutes=0)
    assert "\n" not in str(caught.value)
    # steps 1 and 2 are saved, nothing of step 3
    assert fake.events == [("state", 1), ("model", 1), ("state", 2), ("model", 2)]


# Signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(number: signal.Signals, tmp_path: Path) -> None:
    fake = Fake()
    fake.after_step = lambda step: signal.raise_signal(number) if step == 4 else None
    before = signal.getsignal(number)
    with pytest.raises(Stopped, match=f"{number.name} after step 4") as caught:
        go(fake, tmp_path)
    assert caught.value.number == number
    assert fake.events == [("state", 4)]
    assert signal.getsignal(number) is before


def test_a_signal_in_the_last_step_finishes_the_run(tmp_path: Path) -> None:
    """Saved as finished but without its end, it would never get its model."""
    fake = Fake()
    fake.after_step = lambda step: signal.raise_signal(signal.SIGTERM) if step == 10 else None
    go(fake, tmp_path)
    assert fake.events == [("evaluation", 10), ("model", 10), ("state", 10)]


def test_a_second_signal_acts_at_once(tmp_path: Path) -> None:
    fake = Fake()

    def twice(step: int) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    fake.after_step = twice
    with pytest.raises(KeyboardInterrupt):
        go(fake, tmp_path)
    assert fake.events == []


def test_all_processes_stop_when_one_is_asked(tmp_path: Path) -> None:
    fake = Fake()
    with pytest.raises(Stopped, match="SIGTERM after step 1"):
        train(fake, Run(tmp_path), **QUIET, agree=lambda asked: True)


# A real model ---------------------------------------------------------------------------------


def test_no_number_stops_a_training_and_its_last_save_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        trainer_module,
        "learning_rate",
        lambda *rest, seen, tokens: 0.01 if seen < 150 else math.inf,
    )
    data, out = small_data(tmp_path), tmp_path / "run"
    recipe = small_recipe(run__evaluate_tokens=0)
    # The step with the infinite rate looks good itself; what it leaves must not be saved.
    with pytest.raises(ElmoreError, match=r"step \d+: the weights contain NaN or infinity; lower"):
        pretrain(data, out, recipe=recipe, threads=1)
    state = load_state(out / "resume")
    assert state[1]["step"] >= 3
    tensors = (tensor for part in state[0].values() for tensor in part.values())
    assert all(bool(tensor.isfinite().all()) for tensor in tensors)
    rarely = small_recipe(run__save_minutes=1000)
    with pytest.raises(ElmoreError, match=r"step \d+: \w+ is nan, gradient norm nan; lower"):
        pretrain(data, out, recipe=rarely, threads=1, resume=True)
    assert load_state(out / "resume")[1] == state[1]  # type: ignore[index]

"""The one training loop: steps, log, evaluations, saves, and orderly ends."""

from __future__ import annotations

import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from elmore.errors import ElmoreError, Stopped
from elmore.training.run import Run, load_state, restoring, save_state

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from elmore.training.optimizers import Optimizer


class StepReport(NamedTuple):
    """What one step gives: mean losses by name, the learning rate, the gradient's norm."""

    losses: dict[str, float]
    lr: float
    norm: float


class Trainable(ABC):
    """What `train` can train: a language model or a task.

    Attributes:
        run: the folder of the run.
        step_number: finished steps.
        seen: tokens or examples of all finished steps.
        best: the highest score so far; -inf before the first evaluation.
        evaluations_since_best: evaluations that brought no better score.
        optimizer: changes the weights.
        means: running means of the weights, by name; empty if the recipe asks for none.
    """

    optimizer: Optimizer

    def __init__(self, run: Run) -> None:
        self.run = run
        self.step_number = self.seen = 0
        self.best = -math.inf
        self.evaluations_since_best = 0
        self.means: dict[str, Tensor] = {}

    @abstractmethod
    def finished(self) -> bool:
        """Whether the run has come to its end."""

    @abstractmethod
    def total(self) -> int:
        """The length of the run, in the unit of `seen`."""

    @abstractmethod
    def step(self) -> StepReport:
        """Do one step."""

    @abstractmethod
    def evaluate(self) -> dict[str, float] | None:
        """Measure on the held-out data; None if there are none."""

    @abstractmethod
    def save_model(self, *, best: bool) -> None:
        """Write the model."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """All that learns, by name; the tensors share the memory of the weights."""

    @abstractmethod
    def own_state(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """What a resumed run needs besides weights, means and counters: tensors, JSON values."""

    @abstractmethod
    def restore(self, tensors: dict[str, dict[str, Tensor]], facts: Mapping[str, Any]) -> None:
        """Take what `own_state` gave."""

    def follow_weights(self, decay: float) -> None:
        """Move the means towards the weights, after a step."""
        # A young mean follows faster, or the random start would weigh on it for long.
        decay = min(decay, self.step_number / (9 + self.step_number))
        weights = self.weights()
        for name, mean in self.means.items():
            mean.lerp_(weights[name], 1 - decay)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Swap the weights for their means, if there are any."""

        def swap() -> None:
            weights = self.weights()
            for name, mean in self.means.items():
                own = weights[name].clone()
                weights[name].copy_(mean)
                mean.copy_(own)

        swap()
        try:
            yield
        finally:
            swap()

    def save_state(self, *, main: bool = True) -> None:
        """Write what a resumed run needs; only the process that is `main` writes."""
        # A step may look fine and still leave NaN behind: its loss is that of the weights before.
        if not all(bool(weight.isfinite().all()) for weight in self.weights().values()):
            raise ElmoreError(
                f"step {self.step_number}: the weights contain NaN or infinity; lower optimizer.lr "
                "or clip_norm and resume from the last save"
            )
        # On every process: collecting what they carry needs all of them.
        own, facts = self.own_state()
        parts = {
            "weights": self.weights(),
            "means": self.means,
            "optimizer": self.optimizer.state(),
            **own,
        }
        counters = {
            "seen": self.seen,
            "best_score": None if math.isinf(self.best) else self.best,  # JSON has no infinity
            "evaluations_since_best": self.evaluations_since_best,
        }
        if main:
            save_state(self.run.resume_path, self.step_number, parts, {**counters, **facts})

    def load_state(self, device: torch.device | str) -> bool:
        """Continue from the newest saved state; False if there is none."""
        loaded = load_state(self.run.resume_path, device)
        if loaded is None:
            return False
        parts, facts = loaded
        with restoring(self.run.resume_path):
            # The weights of a finished run are in its checkpoint.
            for name, weight in self.weights().items() if "finished" not in parts else ():
                # In place: others hold these very tensors, such as a tied softmax.
                weight.copy_(parts["weights"][name])
            self.means = parts.get("means", {})
            self.optimizer.load(parts.get("optimizer", {}))
            self.step_number, self.seen = int(facts["step"]), int(facts["seen"])
            best = facts["best_score"]
            self.evaluations_since_best = int(facts["evaluations_since_best"])
            self.best = -math.inf if best is None else float(best)
            self.restore(parts, facts)
        return True


def train(
    trainable: Trainable,
    run: Run,
    *,
    log_steps: int,
    save_minutes: float,
    evaluate_every: int,
    patience: int,
    unit: str = "tokens",
    score: Callable[[dict[str, float]], float] = lambda found: -found["loss"],
    main: bool = True,
    report: Callable[[dict[str, Any]], object] | None = None,
    agree: Callable[[bool], bool] = lambda asked: asked,
) -> None:
    """Train until the run has come to its end, or a signal asks to stop.

    Args:
        trainable: what to train.
        run: where the log goes.
        log_steps: steps between lines of the log.
        save_minutes: minutes between states to resume from.
        evaluate_every: units of `trainable.seen` between evaluations; 0 for the end only.
        patience: evaluations without a better score after which to end; 0 for never.
        unit: what `trainable.seen` counts.
        score: makes one number of an evaluation; higher is better.
        main: whether this process writes.
        report: gets every line of the log.
        agree: makes all processes take the same decision.

    Raises:
        Stopped: after a signal, with everything saved.
    """
    window: list[tuple[StepReport, int]] = []  # steps since the last line of the log
    last_line = last_save = time.monotonic()

    def write(line: dict[str, Any]) -> None:
        line = {"step": trainable.step_number, unit: trainable.seen, **line}
        if main:
            run.append(line)
        if report is not None:
            report({**line, "total": trainable.total()})

    def evaluate() -> None:
        found = trainable.evaluate()
        if found is None:
            return
        write({"heldout": found})
        trainable.evaluations_since_best += 1
        if score(found) > trainable.best:
            trainable.best, trainable.evaluations_since_best = score(found), 0
            trainable.save_model(best=True)

    def ended() -> bool:
        impatient = 0 < patience <= trainable.evaluations_since_best
        return impatient or trainable.finished()

    if ended():  # a resumed run that has its last evaluation and its model already
        return
    with _signals() as asked:
        evaluated_at = -1
        while not ended():
            before = trainable.seen
            done = trainable.step()
            _check_finite(trainable.step_number, done)
            window.append((done, trainable.seen - before))
            if trainable.step_number % log_steps == 0:
                write(_summary(window, unit, time.monotonic() - last_line))
                window, last_line = [], time.monotonic()
            # At multiples, so that a resumed run evaluates where the uninterrupted one does.
            if evaluate_every and trainable.seen // evaluate_every > before // evaluate_every:
                evaluate()
                evaluated_at = trainable.seen
            # One process may get the signal, or see the clock, a step before the others.
            stop = agree(bool(asked))
            due = agree(time.monotonic() - last_save >= save_minutes * 60)
            if (due or stop) and not ended():
                trainable.save_state()
                last_save = time.monotonic()
            # Not on a stop: whoever stopped the run waits for it, and can resume from the state.
            if due and not stop:
                trainable.save_model(best=False)
            # A run that has just come to its end goes on to it: stopped here, it would have no
            # last evaluation and no model.
            if stop and not ended():
                raise Stopped(asked[0] if asked else signal.SIGTERM, trainable.step_number)
        if evaluated_at != trainable.seen:
            evaluate()
        # The model first: once a state says that the run is finished, no resume writes it.
        trainable.save_model(best=False)
        trainable.save_state()
        if main:
            run.keep_newest_state()


def _check_finite(step: int, done: StepReport) -> None:
    for name, loss in done.losses.items():
        if not math.isfinite(loss) or not math.isfinite(done.norm):
            raise ElmoreError(
                f"step {step}: {name} is {loss}, gradient norm {done.norm}; lower optimizer.lr or "
                "clip_norm and resume from the last save"
            )


def _summary(steps: list[tuple[StepReport, int]], unit: str, seconds: float) -> dict[str, Any]:
    """Means over steps and what each saw, weighted by the latter; rates are those of the last."""
    seen, last = sum(count for _, count in steps), steps[-1][0]
    sums = {name: sum(done.losses[name] * n for done, n in steps) for name in last.losses}
    return {
        "loss": {name: total / seen for name, total in sums.items()},
        "lr": last.lr,
        "norm": last.norm,
        f"{unit}_per_s": seen / max(seconds, 1e-9),
    }


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Note SIGINT and SIGTERM instead of dying; a second one acts at once."""
    asked: list[int] = []
    # Python lets only the main thread set handlers; elsewhere signals keep their meaning.
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before: dict[int, Any] = {}

    def note(number: int, frame: object) -> None:
        asked.append(number)
        # From now on it acts as before, so a second one ends a step that hangs.
        signal.signal(number, before[number])

    for number in (int(signal.SIGINT), int(signal.SIGTERM)):
        before[number] = signal.signal(number, note)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

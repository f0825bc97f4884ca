"""The one training loop: steps, log, evaluations, saves, and orderly ends."""

from __future__ import annotations

import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from elmore.errors import ElmoreError, Stopped
from elmore.training.run import Run

if TYPE_CHECKING:
    from torch import Tensor


class StepReport(NamedTuple):
    """What one step gives: mean losses by name, the learning rate, the gradient's norm."""

    losses: dict[str, float]
    lr: float
    norm: float


@dataclass(frozen=True)
class Cadence:
    """How often things happen."""

    log_steps: int  # steps between lines of the log
    save_minutes: float  # minutes between states to resume from
    evaluate_every: int  # units of `Trainable.seen` between evaluations; 0 for the end only
    patience: int  # evaluations without a better score after which to end; 0 for never


class Trainable(ABC):
    """What `train` can train: a language model or a task.

    Attributes:
        step_number: finished steps.
        seen: tokens or examples of all finished steps.
        best: the highest score so far; -inf before the first evaluation.
        evaluations_since_best: evaluations that brought no better score.
    """

    def __init__(self) -> None:
        self.step_number = self.seen = 0
        self.best = -math.inf
        self.evaluations_since_best = 0

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
    def save_state(self) -> None:
        """Write what a resumed run needs."""

    @abstractmethod
    def save_model(self, *, best: bool) -> None:
        """Write the model."""

    def _counters(self) -> dict[str, Any]:
        """The attributes as JSON values, but for the step, which every state has."""
        return {
            "seen": self.seen,
            "best_score": None if math.isinf(self.best) else self.best,  # JSON has no infinity
            "evaluations_since_best": self.evaluations_since_best,
        }

    def _restore_counters(self, facts: Mapping[str, Any]) -> None:
        """Continue from the counters of a state."""
        self.step_number, self.seen = int(facts["step"]), int(facts["seen"])
        best = facts["best_score"]
        self.evaluations_since_best = int(facts["evaluations_since_best"])
        self.best = -math.inf if best is None else float(best)

    def _check_weights(self, weights: Iterable[Tensor]) -> None:
        """Refuse to save what no run could continue from; the state before stays."""
        # A step may look fine and still leave NaN behind: its loss is that of the weights before.
        if not all(bool(weight.isfinite().all()) for weight in weights):
            raise ElmoreError(
                f"step {self.step_number}: the weights contain NaN or infinity; lower optimizer.lr "
                "or clip_norm and resume from the last save"
            )


def train(
    trainable: Trainable,
    run: Run,
    cadence: Cadence,
    *,
    unit: str = "tokens",
    score: Callable[[dict[str, float]], float] = lambda found: -found["loss"],
    main: bool = True,
    report: Callable[[dict[str, Any]], object] | None = None,
    agree: Callable[[bool], bool] = lambda asked: asked,
) -> None:
    """Train until the run has come to its end, or a signal asks to stop.

    `unit` is what `trainable.seen` counts. `score` makes one number of an evaluation; higher is
    better. `report` gets every line of the log. Only the process that is `main` writes, and `agree`
    makes all processes take the same decision.

    Raises:
        Stopped: after a signal, with everything saved.
    """
    window = _LogMeans(unit)
    last_save = time.monotonic()
    every = cadence.evaluate_every

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
        impatient = 0 < cadence.patience <= trainable.evaluations_since_best
        return impatient or trainable.finished()

    if ended():  # a resumed run that has its last evaluation and its model already
        return
    with _signals() as asked:
        evaluated_at = -1
        while not ended():
            before = trainable.seen
            done = trainable.step()
            _check_finite(trainable.step_number, done)
            window.add(done, trainable.seen - before)
            if trainable.step_number % cadence.log_steps == 0:
                write(window.summary())
            # At multiples, so that a resumed run evaluates where the uninterrupted one does.
            if every and trainable.seen // every > before // every:
                evaluate()
                evaluated_at = trainable.seen
            # One process may get the signal, or see the clock, a step before the others.
            stop = agree(bool(asked))
            due = agree(time.monotonic() - last_save >= cadence.save_minutes * 60)
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


class _LogMeans:
    """Means since the last line of the log."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._steps: list[tuple[StepReport, int]] = []
        self._started = time.monotonic()

    def add(self, done: StepReport, seen: int) -> None:
        self._steps.append((done, seen))

    def summary(self) -> dict[str, Any]:
        """The means; the next window starts."""
        seen = sum(count for _, count in self._steps)
        last = self._steps[-1][0]
        sums = {name: sum(d.losses[name] * n for d, n in self._steps) for name in last.losses}
        line = {
            "loss": {name: total / seen for name, total in sums.items()},
            "lr": last.lr,
            "norm": last.norm,
            f"{self._unit}_per_s": seen / max(time.monotonic() - self._started, 1e-9),
        }
        self._steps, self._started = [], time.monotonic()
        return line


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

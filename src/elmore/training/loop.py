"""The one training loop: steps, log, looks at held-out text, saves, and orderly ends."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from elmore.errors import ElmoreError
from elmore.training.run import Run

__all__ = ["Rhythm", "StepReport", "Stopped", "Trainee", "train"]


class Stopped(ElmoreError):
    """A signal asked the training to stop; everything is saved.

    Args:
        number: the signal.
        step: the last finished step.
    """

    def __init__(self, number: int, step: int) -> None:
        self.number = number
        super().__init__(f"stopped by {signal.Signals(number).name} after step {step}; resume it")


class StepReport(NamedTuple):
    """What one step gives: mean losses by name, the learning rate, the gradient's norm."""

    losses: dict[str, float]
    lr: float
    norm: float


class Rhythm(Protocol):
    """How often things happen; the section `run` of a recipe."""

    @property
    def log_steps(self) -> int:
        """Steps between lines of the log."""

    @property
    def save_minutes(self) -> float:
        """Minutes between saves for a resume."""

    @property
    def look_every(self) -> int:
        """Units of `Trainee.seen` between looks at held-out data; 0 for the end only."""

    @property
    def patience(self) -> int:
        """Looks without a better one after which to end; 0 for never."""


class Trainee(Protocol):
    """What can be trained by `train`: a language model or a task."""

    step_number: int
    seen: int
    best: float
    looks_since_best: int

    def finished(self) -> bool:
        """Tell whether the run has come to its end."""

    def total(self) -> int:
        """Give the length of the run, in the unit of `seen`."""

    def step(self) -> StepReport:
        """Do one step."""

    def evaluate(self) -> dict[str, float] | None:
        """Look at the held-out data."""

    def save_state(self) -> None:
        """Write what a resumed run needs."""

    def save_model(self, *, best: bool) -> None:
        """Write the model."""


def train(
    trainee: Trainee,
    run: Run,
    recipe: Rhythm,
    *,
    unit: str = "tokens",
    badness: Callable[[dict[str, float]], float] = lambda found: found["loss"],
    main: bool = True,
    report: Callable[[dict[str, Any]], None] | None = None,
    agree: Callable[[bool], bool] = lambda asked: asked,
) -> None:
    """Train until the run has come to its end, or a signal asks to stop.

    Args:
        trainee: what to train.
        run: its folder.
        recipe: how often to log, look and save.
        unit: what `trainee.seen` counts, for the log.
        badness: makes of a look the number whose lowest value is best.
        main: whether this process writes.
        report: gets every line of the log as it is written.
        agree: makes all processes take the same decision.

    Raises:
        Stopped: after a signal, with everything saved.
    """
    window = _Window(unit)
    last_save = time.monotonic()
    next_look = None
    if recipe.look_every:
        # Looks fall on multiples, so that a resumed run looks where the uninterrupted one does.
        next_look = (trainee.seen // recipe.look_every + 1) * recipe.look_every

    def write(line: dict[str, Any]) -> None:
        line = {"step": trainee.step_number, unit: trainee.seen, **line}
        if main:
            run.append(line)
        if report is not None:
            report({**line, "total": trainee.total()})

    def look() -> None:
        found = trainee.evaluate()
        if found is None:
            return
        write({"heldout": found})
        trainee.looks_since_best += 1
        if badness(found) < trainee.best:
            trainee.best, trainee.looks_since_best = badness(found), 0
            trainee.save_model(best=True)

    def patient() -> bool:
        return not recipe.patience or trainee.looks_since_best < recipe.patience

    with _signals() as asked:
        looked_at = -1
        while not trainee.finished() and patient():
            before = trainee.seen
            done = trainee.step()
            for name, loss in done.losses.items():
                if not math.isfinite(loss) or not math.isfinite(done.norm):
                    raise ElmoreError(
                        f"step {trainee.step_number}: {name} is {loss}, gradient norm {done.norm}; "
                        "lower optimizer.lr or clip_norm and resume from the last save"
                    )
            window.add(done, trainee.seen - before)
            if trainee.step_number % recipe.log_steps == 0:
                write(window.summary())
            if next_look is not None and trainee.seen >= next_look:
                look()
                looked_at = trainee.seen
                next_look = (trainee.seen // recipe.look_every + 1) * recipe.look_every
            stop = agree(asked.number is not None)
            due = agree(time.monotonic() - last_save >= recipe.save_minutes * 60)
            if (due or stop) and not trainee.finished():
                trainee.save_state()
                last_save = time.monotonic()
            if due and not stop:
                trainee.save_model(best=False)
            # A run that has just come to its end ends in order: it would be saved unfinished.
            if stop and not trainee.finished():
                raise Stopped(asked.number or signal.SIGTERM, trainee.step_number)
        if looked_at != trainee.seen:
            look()
        trainee.save_model(best=False)
        trainee.save_state()


class _Window:
    """Means since the last line of the log."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._reset()

    def _reset(self) -> None:
        self._losses: dict[str, float] = {}
        self._seen = 0
        self._last: StepReport | None = None
        self._started = time.monotonic()

    def add(self, done: StepReport, seen: int) -> None:
        for name, loss in done.losses.items():
            self._losses[name] = self._losses.get(name, 0.0) + loss * seen
        self._seen += seen
        self._last = done

    def summary(self) -> dict[str, Any]:
        """Give the means and start anew."""
        seconds = time.monotonic() - self._started
        last = self._last
        line = {
            "loss": {name: total / self._seen for name, total in self._losses.items()},
            "lr": last.lr if last else 0.0,
            "norm": last.norm if last else 0.0,
            f"{self._unit}_per_s": self._seen / max(seconds, 1e-9),
        }
        self._reset()
        return line


class _Asked:
    number: int | None = None


@contextmanager
def _signals() -> Iterator[_Asked]:
    """Note SIGINT and SIGTERM instead of dying; a second one acts at once."""
    asked = _Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before: dict[int, Any] = {}

    def note(number: int, frame: object) -> None:
        asked.number = number
        signal.signal(number, before[number])

    for number in (int(signal.SIGINT), int(signal.SIGTERM)):
        before[number] = signal.signal(number, note)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

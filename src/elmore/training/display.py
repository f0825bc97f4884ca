"""The live report of a training run, for the command line and for Python.

`progress=` of `pretrain`, `fine_tune` and `Task.fit` chooses it. True or None shows it, False does
not. A function gets every line of the log instead: a dictionary with `step`, `tokens` (of a task
`examples` and `epoch`) and `total`, and either `loss`, `lr`, `norm` and a rate, or `heldout` with
the scores of an evaluation. A new run of a language model has another one before the first, with a
`plan` in words: how long it will take.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from elmore.base.messages import is_watched, make_bar, say, shown, wants_reports
from elmore.base.optional import require
from elmore.errors import ConfigError
from elmore.language_model.perplexity import headline
from elmore.training.run import Run

# What gets the lines of the log.
LineFunction = Callable[[dict[str, Any]], object]
TrainingProgress = LineFunction | bool | None


@contextmanager
def reporting(
    progress: TrainingProgress, run: Path, *, metric: str | None = None, resume: bool = False
) -> Iterator[LineFunction]:
    """What gets the lines of the log: what the user passed, or a `Display`."""
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise ConfigError(
            f"progress={shown(repr(progress), 40)}; use True, False, None or a function that takes "
            "a line of the log"
        )
    if callable(progress):
        yield progress
        return
    quiet = not (wants_reports() if progress is None else progress)
    with Display(run, metric=metric, resume=resume, quiet=quiet) as display:
        yield display.show


def heldout_headline(found: dict[str, float]) -> str:
    """An evaluation of the log in one line."""
    return headline(found["perplexity"], found["without_unknown"], found["oov_rate"])


class Display(AbstractContextManager["Display"]):
    """Shows the log of a run: a bar in a terminal or notebook, otherwise lines on stderr.

    Args:
        run: the folder of the run.
        metric: the score of a task that is trained; None for a language model.
        resume: whether the run may be there already.
        prefix: what each line starts with.
        quiet: show nothing.
        tensorboard: write event files too.
    """

    def __init__(
        self,
        run: Path,
        *,
        metric: str | None = None,
        resume: bool = False,
        prefix: str = "",
        quiet: bool = False,
        tensorboard: bool = False,
    ) -> None:
        self._quiet, self._metric, self._prefix = quiet, metric, prefix
        self._unit = "tokens" if metric is None else "examples"
        self._bar: Any = None
        self._started = time.time()
        self._tensorboard: Any = None
        self.last_heldout: dict[str, float] | None = None
        self._best = -math.inf
        if metric is not None and resume:
            for line in Run(run).log():
                self._note(line)
        if tensorboard:
            require("tensorboard", "train", "--tensorboard")
            from torch.utils.tensorboard import SummaryWriter

            self._tensorboard = SummaryWriter(str(run / "tensorboard"))

    def show(self, line: dict[str, Any]) -> None:
        """Show one line of the log."""
        self._note(line)
        if self._tensorboard is not None:
            self._write_events(line)
        if self._quiet:
            return
        if "plan" in line:
            say(f"{self._prefix}{line['plan']}")
        elif is_watched():
            self._draw(line)
        elif text := self._text(line):
            say(f"{self._prefix}{text}")

    def _note(self, line: dict[str, Any]) -> None:
        if "heldout" in line:
            found: dict[str, float] = line["heldout"]
            self.last_heldout = found
            if self._metric is not None:
                if self._metric not in found:  # the labels decided on another
                    self._metric = next(iter(found))
                self._best = max(self._best, found[self._metric])

    def _text(self, line: dict[str, Any]) -> str | None:
        """What to say without a terminal; of a task's training only the evaluations."""
        found = line.get("heldout")
        if self._metric is not None:
            if found is None:
                return None
            score = f"{self._metric} {found[self._metric]:.2f}"
            return f"epoch {line['epoch']}: {score} (best {self._best:.2f})"
        seen = f"{line['tokens']:,} tokens: "
        if found is not None:
            return f"{seen}held-out perplexity {heldout_headline(found)}"
        return f"{seen}{_losses(line)}, {line['tokens_per_s']:,.0f} tokens/s"

    def _draw(self, line: dict[str, Any]) -> None:
        if self._bar is None:
            name, total = self._prefix or None, line.get("total")
            self._bar = make_bar(unit=self._unit, total=total, desc=name, leave=True, scale=True)
            self._bar.start_t = self._started  # not when the first line came: for the rate
        # The last batch may go beyond the total, and tqdm would forget it.
        self._bar.n = min(line[self._unit], line.get("total") or math.inf)
        parts = []
        if "loss" in line:
            parts = [_losses(line) if self._metric is None else f"loss {line['loss']['loss']:.3f}"]
        if self._metric is None and self.last_heldout is not None:
            parts.append(f"held-out {heldout_headline(self.last_heldout)}")
        elif self._best > -math.inf:
            parts.append(f"best {self._metric} {self._best:.2f}")
        self._bar.set_postfix_str(", ".join(parts))

    def _write_events(self, line: dict[str, Any]) -> None:
        for group in ("loss", "heldout"):
            for name, value in line.get(group, {}).items():
                self._tensorboard.add_scalar(f"{group}/{name}", value, line[self._unit])
        if "lr" in line:
            self._tensorboard.add_scalar("lr", line["lr"], line[self._unit])

    def __exit__(self, *details: object) -> None:
        if self._bar is not None:
            self._bar.close()
        if self._tensorboard is not None:
            self._tensorboard.close()


def _losses(line: dict[str, Any]) -> str:
    """The training losses as perplexities, labelled as such: most are of a sampled softmax."""
    values = [math.exp(min(loss, 50)) for loss in line["loss"].values()]
    return "training perplexity " + "/".join(f"{value:.1f}" for value in values)

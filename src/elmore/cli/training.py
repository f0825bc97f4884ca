"""What the training verbs share: recipe flags and the display of a run."""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from elmore._imports import require
from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import say
from elmore.errors import ConfigError

__all__ = [
    "Display",
    "add_recipe",
    "add_training",
    "ending_by_signal",
    "heldout_headline",
    "overrides",
    "warn_if_misleading",
]


def add_recipe(parser: Parser, default: str | None, shown: str | None = None) -> None:
    """--recipe and --set; `shown` is what help says of a default of None."""
    parser.add_argument(
        "--recipe",
        default=default,
        metavar="NAME|FILE",
        help=f"training recipe, see `elmore recipes` (default: {shown or default})",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a key of the recipe, e.g. optimizer.lr=0.002; may be repeated",
    )


def add_training(parser: Parser) -> None:
    """--resume, --seed, --tensorboard and where to compute."""
    parser.add_argument("--resume", action="store_true", help="go on with the run in -o")
    flags.add_seed(parser)
    parser.add_argument("--tensorboard", action="store_true", help="write event files too")
    flags.add_compute(parser, batches=False, precision=False)


def overrides(settings: list[str]) -> dict[str, str]:
    """Turn KEY=VALUE texts into a table."""
    table = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting!r} has no value; write KEY=VALUE")
        table[key.strip()] = value.strip()
    return table


@contextlib.contextmanager
def ending_by_signal() -> Iterator[None]:
    """Let a run that a signal stopped, and that saved everything, end as the signal would."""
    from elmore.training.loop import Stopped

    try:
        yield
    except Stopped as stopped:
        say(f"elmore: {stopped} with --resume")
        _end_by_signal(stopped.number)


def _end_by_signal(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    signal.raise_signal(number)
    raise SystemExit(128 + number)


def heldout_headline(found: dict[str, float]) -> str:
    """An evaluation of the log in one line."""
    from elmore.language_model.perplexity import headline

    if "oov_rate" not in found:  # written by elmore 0.2
        return f"{found['perplexity']:.1f}"
    return headline(found["perplexity"], found["without_unknown"], found["oov_rate"])


def warn_if_misleading(oov_rate: float, *, quiet: bool) -> None:
    """Say when so many words are unknown that a perplexity should not be quoted alone."""
    from elmore.language_model.perplexity import misleading

    if not quiet and (warning := misleading(oov_rate)) is not None:
        say(f"elmore: warning: {warning}")


class Display(contextlib.AbstractContextManager["Display"]):
    """Shows the log of a run on stderr: a bar on a terminal, otherwise a line now and then.

    Args:
        args: the verb's arguments: quiet, resume, tensorboard.
        run: the folder of the run.
        metric: the score of a task that is trained; None for a language model.
        prefix: what each line starts with.
    """

    def __init__(
        self, args: argparse.Namespace, run: Path, *, metric: str | None = None, prefix: str = ""
    ) -> None:
        self._quiet, self._metric, self._prefix = bool(args.quiet), metric, prefix
        self._unit = "tokens" if metric is None else "examples"
        self._bar: Any = None
        self._tensorboard: Any = None
        self.last_heldout: dict[str, float] | None = None
        # By step: what a resumed run does again takes the place of the old evaluations.
        self._scores: dict[int, float] = {}
        if metric is not None and args.resume:
            from elmore.training.run import Run

            for line in Run(run).log():
                self._note(line)
        if getattr(args, "tensorboard", False):
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
        if sys.stderr is not None and sys.stderr.isatty():
            self._draw(line)
        elif text := self._text(line):
            say(f"{self._prefix}{text}")

    def _note(self, line: dict[str, Any]) -> None:
        if "heldout" in line:
            self.last_heldout = line["heldout"]
            if self._metric is not None:
                if self._metric not in self.last_heldout:  # the labels decided on another
                    self._metric = next(iter(self.last_heldout))
                self._scores[line["step"]] = float(line["heldout"][self._metric])

    def _so_far(self, line: dict[str, Any]) -> list[float]:
        return [score for step, score in self._scores.items() if step <= line["step"]]

    def _text(self, line: dict[str, Any]) -> str | None:
        """What to say without a terminal; of a task's training only the evaluations."""
        found = line.get("heldout")
        if self._metric is not None:
            scores = self._so_far(line)
            return (
                None
                if found is None
                else (
                    f"epoch {len(scores)}: {self._metric} {found[self._metric]:.2f} "
                    f"(best {max(scores):.2f})"
                )
            )
        seen = f"{line['tokens']:,} tokens: "
        if found is not None:
            return f"{seen}held-out perplexity {heldout_headline(found)}"
        return f"{seen}{_losses(line)}, {line['tokens_per_s']:,.0f} tokens/s"

    def _draw(self, line: dict[str, Any]) -> None:
        from tqdm import tqdm

        if self._bar is None:
            unit, name = f" {self._unit}", self._prefix or None
            self._bar = tqdm(total=line.get("total"), unit=unit, unit_scale=True, desc=name)
        self._bar.n = line[self._unit]
        parts = []
        if "loss" in line:
            parts = [_losses(line) if self._metric is None else f"loss {line['loss']['loss']:.3f}"]
        if self._metric is None and self.last_heldout is not None:
            parts.append(f"held-out {heldout_headline(self.last_heldout)}")
        elif scores := self._so_far(line):
            parts.append(f"best {self._metric} {max(scores):.2f}")
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
    """The training losses as perplexities of the sampled softmax, labelled as such."""
    values = [math.exp(min(loss, 50)) for loss in line["loss"].values()]
    return "sampled perplexity " + "/".join(f"{value:.1f}" for value in values)

"""What the training verbs share: recipe flags, and how a stopped run ends."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import NoReturn

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import say
from elmore.errors import ConfigError

__all__ = [
    "add_recipe",
    "add_training",
    "ending_by_signal",
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


def warn_if_misleading(oov_rate: float, *, quiet: bool) -> None:
    """Say when so many words are unknown that a perplexity should not be quoted alone."""
    from elmore.language_model.perplexity import misleading

    if not quiet and (warning := misleading(oov_rate)) is not None:
        say(f"elmore: warning: {warning}")

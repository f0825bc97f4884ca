"""`elmore pretrain`: train a biLM."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import say, write_json
from elmore.cli.training import (
    add_recipe,
    add_training,
    ending_by_signal,
    overrides,
    warn_if_misleading,
)

if TYPE_CHECKING:
    from elmore.training.bilm.recipe import Recipe
    from elmore.training.display import Display

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore pretrain data/ -o runs/a
  elmore pretrain data/ -o runs/a --resume
  elmore pretrain data/ -o runs/a --resume --finish 5000000
  torchrun --nproc-per-node 4 -m elmore pretrain data/ -o runs/a --recipe official-small

Ctrl-C saves the run and stops it; --resume continues. `elmore plot runs/a -o loss.svg` draws it.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("data", metavar="DATA", help="a folder made by `elmore prepare`")
    flags.add_output(parser, "folder of the run", required=True)
    add_recipe(parser, None, "laptop, fitted to the size of the data")
    add_training(parser)
    parser.add_argument(
        "--finish",
        type=int,
        metavar="TOKENS",
        help="with --resume: decay the learning rate over this many more tokens, then stop",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        metavar="N",
        help="processes on this machine (default: 1)",
    )
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Train and report the held-out perplexity."""
    # torchrun sets RANK in each process it starts, so this happens only once.
    if args.processes > 1 and "RANK" not in os.environ:
        _spread(args.processes)
    from elmore.training.bilm.pretrain import finish_recipe, pretrain
    from elmore.training.display import Display, heldout_headline

    recipe = _recipe(args)
    if args.finish is not None:
        recipe = finish_recipe(recipe, Path(args.output), args.finish)
    display = Display(Path(args.output), quiet=args.quiet, tensorboard=args.tensorboard)
    with ending_by_signal(), display:
        done = pretrain(
            args.data,
            args.output,
            recipe=recipe,
            seed=args.seed,
            resume=args.resume,
            threads=args.threads,
            device=args.device,
            progress=_announcing(args, recipe, display),
        )
    # Of several processes only the first reports.
    if os.environ.get("RANK", "0") == "0":
        last = display.last_heldout or {}
        if args.json:
            write_json({"run": str(done.path), "heldout": last})
        elif not args.quiet:
            found = f", held-out perplexity {heldout_headline(last)}" if last else ""
            say(f"trained {done.path}{found}; the model is in {done.path}/checkpoint")
        warn_if_misleading(last.get("oov_rate", 0.0), quiet=args.quiet)
    return 0


def _recipe(args: argparse.Namespace) -> Recipe:
    """The recipe that is named, or one that fits the data; say what was chosen."""
    from elmore.corpus.prepared import Prepared
    from elmore.training.bilm.fitted_recipe import DEFAULT, choose_recipe, fitted_keys
    from elmore.training.bilm.recipe import Recipe
    from elmore.training.run import Run

    settings = overrides(args.set)
    if args.recipe is not None:
        return Recipe.load(args.recipe, settings)
    prepared = Prepared.open(args.data)
    chosen = choose_recipe(prepared, Run(args.output) if args.resume else None, settings)
    own = fitted_keys(Recipe.load(DEFAULT, settings))
    fitted = {key: value for key, value in fitted_keys(chosen).items() if value != own[key]}
    if fitted and not args.resume and not args.quiet and os.environ.get("RANK", "0") == "0":
        values = ", ".join(f"{key}={value:_g}" for key, value in fitted.items())
        say(f"recipe {DEFAULT}, fitted to {prepared.n_tokens:,} training tokens: {values}")
    return chosen


def _announcing(
    args: argparse.Namespace, recipe: Recipe, display: Display
) -> Callable[[dict[str, Any]], None]:
    """Show the log, after a plan that is made from the speed of the run's own first steps."""
    from elmore.base.machine import peak_memory
    from elmore.corpus.prepared import Prepared
    from elmore.training.bilm.plan import Measured, Plan

    planned = args.quiet or args.resume

    def show(line: dict[str, Any]) -> None:
        nonlocal planned
        if not planned and "tokens_per_s" in line:
            measured = Measured(tokens_per_second=line["tokens_per_s"], memory_bytes=peak_memory())
            say(Plan.of(Prepared.open(args.data), recipe, measured).line())
            planned = True
        display.show(line)

    return show


def _spread(processes: int) -> NoReturn:
    """Start the same command in several processes."""
    rest = list(sys.argv[1:])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(processes), "-m", "elmore", *rest]
    if sys.platform == "win32":  # exec returns to the shell there, which then waits for nobody
        raise SystemExit(subprocess.call(command))  # noqa: S603 - our own interpreter and arguments
    os.execv(sys.executable, command)  # noqa: S606 - our own interpreter and arguments

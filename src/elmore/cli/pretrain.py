"""`elmore pretrain`: train a biLM."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import say, write_json
from elmore.cli.training import Display, add_recipe, add_training, ending_by_signal, overrides

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore pretrain data/ -o runs/a --recipe laptop
  elmore pretrain data/ -o runs/a --recipe laptop --resume
  elmore pretrain data/ -o runs/a --recipe laptop --resume --finish 5000000
  torchrun --nproc-per-node 4 -m elmore pretrain data/ -o runs/a --recipe official-small

Ctrl-C saves the run and stops it; --resume continues. `elmore plot runs/a -o loss.svg` draws it.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("data", metavar="DATA", help="a folder made by `elmore prepare`")
    flags.add_output(parser, "folder of the run", required=True)
    add_recipe(parser, "laptop")
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
    from elmore.training.pretrain import finish_recipe, pretrain
    from elmore.training.recipe import Recipe

    recipe = Recipe.load(args.recipe, overrides(args.set))
    if args.finish is not None:
        recipe = finish_recipe(recipe, Path(args.output), args.finish)
    with ending_by_signal(), Display(args, Path(args.output)) as display:
        done = pretrain(
            args.data,
            args.output,
            recipe=recipe,
            seed=args.seed,
            resume=args.resume,
            threads=args.threads,
            device=args.device,
            report=display.show,
        )
    # Of several processes only the first reports.
    if os.environ.get("RANK", "0") == "0":
        last = display.last_heldout or {}
        if args.json:
            write_json({"run": str(done.path), "heldout": last})
        elif not args.quiet:
            found = f", held-out perplexity {last['perplexity']:.1f}" if last else ""
            say(f"trained {done.path}{found}; the model is in {done.path}/checkpoint")
    return 0


def _spread(processes: int) -> NoReturn:
    """Start the same command in several processes."""
    rest = list(sys.argv[1:])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(processes), "-m", "elmore", *rest]
    if sys.platform == "win32":  # exec returns to the shell there, which then waits for nobody
        raise SystemExit(subprocess.call(command))  # noqa: S603 - our own interpreter and arguments
    os.execv(sys.executable, command)  # noqa: S606 - our own interpreter and arguments

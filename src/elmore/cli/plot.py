"""`elmore plot`: the curves of a run as a picture."""

from __future__ import annotations

import argparse
from pathlib import Path

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import say

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore plot runs/a -o loss.svg
  elmore plot runs/a -o loss.png --force
"""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", metavar="RUN", help="the folder of a run")
    flags.add_output(parser, "picture to create: svg, png or pdf", required=True)
    flags.add_common(parser, json=False)


def run(args: argparse.Namespace) -> int:
    """Draw the picture."""
    # matplotlib is slow to import, and help must not wait for it.
    from elmore.training.bilm.curves import plot_run
    from elmore.training.run import Run

    plot_run(Run.open(args.run), Path(args.output), overwrite=args.force)
    if not args.quiet:
        say(f"drew {args.output}")
    return 0

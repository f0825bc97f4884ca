"""`elmore plan`: what a training run will cost and bring."""

from __future__ import annotations

import argparse

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import write_json, write_result
from elmore.cli.training import add_recipe, overrides

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore plan data/
  elmore plan data/ --recipe official-small --threads 4
  elmore plan data/ --set model.dim=768 --set model.projection_dim=192 --json

It trains a few steps and forgets them. The expected perplexity comes from earlier runs on English.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("data", metavar="DATA", help="a folder made by `elmore prepare`")
    add_recipe(parser, None, "laptop, fitted to the size of the data")
    flags.add_compute(parser, batches=False, precision=False)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and report."""
    from elmore.corpus.prepared import Prepared
    from elmore.training.bilm.fitted_recipe import choose_recipe
    from elmore.training.bilm.plan import make_plan
    from elmore.training.bilm.recipe import Recipe

    prepared, settings = Prepared.open(args.data), overrides(args.set)
    recipe = (
        choose_recipe(prepared, settings=settings)
        if args.recipe is None
        else Recipe.load(args.recipe, settings)
    )
    plan = make_plan(prepared, recipe=recipe, threads=args.threads, device=args.device)
    if args.json:
        write_json(plan.to_dict())
    else:
        write_result(str(plan))
    return 0

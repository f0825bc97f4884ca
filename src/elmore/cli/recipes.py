"""`elmore recipes`: list, show or copy training recipes."""

from __future__ import annotations

import argparse

from elmore.cli import flags
from elmore.cli.report import write_json, write_result
from elmore.errors import ConfigError

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore recipes
  elmore recipes show laptop > my.toml
  elmore pretrain data/ -o runs/a --recipe my.toml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("action", nargs="?", choices=("list", "show"), default="list")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the recipe to show")
    flags.add_json(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """List the recipes with their first line, or print one."""
    from elmore.training.recipe_files import recipe_names, recipe_text

    if args.action == "show":
        if args.name is None:
            raise ConfigError(f"show which recipe? one of {', '.join(recipe_names())}")
        write_result(recipe_text(args.name).rstrip("\n"))
        return 0
    summaries = {
        name: recipe_text(name).split("\n", 1)[0].removeprefix("# ") for name in recipe_names()
    }
    if args.json:
        write_json(summaries)
        return 0
    width = max(map(len, summaries))
    for name, summary in summaries.items():
        write_result(f"{name:<{width}}  {summary}")
    return 0

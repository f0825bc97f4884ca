"""`elmore recipes`: list, show or copy training recipes."""

from __future__ import annotations

import argparse
from functools import partial

from elmore.cli import flags
from elmore.cli.report import write_json, write_result
from elmore.errors import ConfigError
from elmore.report import aligned

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore recipes
  elmore recipes show laptop > my.toml
  elmore pretrain data/ -o runs/a --recipe my.toml
  elmore recipes show ner-paper
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("action", nargs="?", choices=("list", "show"), default="list")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the recipe to show")
    flags.add_json(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """List the recipes with their first line, or print one."""
    from elmore.training.recipe_files import (
        recipe_names,
        recipe_text,
        task_recipe_names,
        task_recipe_text,
    )

    texts = {name: partial(recipe_text, name) for name in recipe_names()}
    texts.update({name: partial(task_recipe_text, name) for name in task_recipe_names()})
    if args.action == "show":
        if args.name is None:
            raise ConfigError(f"show which recipe? one of {', '.join(texts)}")
        write_result(texts.get(args.name, partial(recipe_text, args.name))().rstrip("\n"))
        return 0
    summaries = {name: text().split("\n", 1)[0].removeprefix("# ") for name, text in texts.items()}
    if args.json:
        write_json(summaries)
        return 0
    write_result(aligned(list(summaries.items())))
    return 0

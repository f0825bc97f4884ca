"""`elmore recipes`: list or show training recipes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import write_json, write_result
from elmore.errors import ConfigError
from elmore.report import aligned

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore recipes
  elmore recipes show laptop > my.toml
  elmore pretrain data/ -o runs/a --recipe my.toml
"""


def add_arguments(parser: Parser) -> None:
    """Declare the actions."""
    action = parser.add_action(
        "list",
        "one line per recipe (default)",
        "  elmore recipes list\n  elmore recipes --json",
        default=True,
    )
    flags.add_common(action)
    action = parser.add_action(
        "show",
        "print a recipe",
        "  elmore recipes show laptop > my.toml\n  elmore recipes show ner-paper",
    )
    action.add_argument("name", nargs="?", metavar="NAME", help="the recipe")
    flags.add_common(action, json=False)


def run(args: argparse.Namespace) -> int:
    """List the recipes with their first line, or print one."""
    from elmore.training.bilm.recipe_files import (
        recipe_names,
        recipe_text,
        task_recipe_names,
        task_recipe_text,
    )

    # Recipes of tasks are called TASK-NAME, so the names do not collide.
    texts: dict[str, Callable[[], str]] = {
        **{name: partial(recipe_text, name) for name in recipe_names()},
        **{name: partial(task_recipe_text, name) for name in task_recipe_names()},
    }
    if args.action == "show":
        if args.name is None:
            raise ConfigError(f"name the recipe to show: one of {', '.join(texts)}")
        # A name that is not in the table gets its error from `recipe_text`, with a guess.
        write_result(texts.get(args.name, partial(recipe_text, args.name))().rstrip("\n"))
        return 0
    summaries = {name: text().split("\n", 1)[0].removeprefix("# ") for name, text in texts.items()}
    if args.json:
        write_json(summaries)
        return 0
    write_result(aligned(list(summaries.items())))
    return 0

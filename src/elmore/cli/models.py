"""`elmore models`: the published models, and which of them are downloaded."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import say, write_json, write_result
from elmore.errors import ConfigError, ModelNotFound
from elmore.published import hub
from elmore.published.catalog import INCLUDED, Published, catalog, find_published
from elmore.report import aligned

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore models --language de
  elmore models --downloaded --json
  elmore models --prune small medium

A name is used like a path: `elmore embed --model small text.txt` downloads the model the first
time. Downloads are in ELMORE_HOME (default: the cache folder of the system). Models that no
program can download are listed in docs/formats.md.
"""

_COLUMNS = ("name", "language", "dim", "MB", "files", "here", "licence", "trained on")
_ALL = "all"


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("--language", metavar="CODE", help="only models of this language (ISO 639)")
    parser.add_argument(
        "--downloaded", action="store_true", help="only models that are on this machine"
    )
    parser.add_argument(
        "--prune",
        nargs="*",
        metavar="NAME",
        help="delete unfinished downloads and the downloads of these models; "
        f"{_ALL} for all of them",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --prune: only list what would be deleted"
    )
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """List the catalogue, or delete downloads."""
    if args.prune is not None:
        return _prune(args)
    if args.dry_run:
        raise ConfigError("--dry-run needs --prune; add --prune or leave it out")
    everything = (*INCLUDED.values(), *catalog().values())
    models = [m for m in everything if args.language in (None, m.language)]
    if not models:
        known = ", ".join(sorted({model.language for model in everything}))
        raise ModelNotFound(f"there is no model for language {args.language!r}; use one of {known}")
    if args.downloaded:
        models = [model for model in models if _is_here(model)]
    if args.json:
        write_json([_record(model) for model in models])
        return 0
    write_result(aligned([_COLUMNS, *(_row(model) for model in models)]))
    if not args.quiet:
        say(f"downloads: {hub.home()}")
    return 0


def _prune(args: argparse.Namespace) -> int:
    if args.language or args.downloaded:
        raise ConfigError("--prune takes names; leave --language and --downloaded out")
    chosen = None if _ALL in args.prune else [find_published(name) for name in args.prune]
    gone = hub.prune(chosen, dry_run=args.dry_run)
    if args.json:
        write_json([str(path) for path in gone])
    else:
        for path in gone:
            write_result(str(path))
    if not args.quiet:
        say(f"{'would delete' if args.dry_run else 'deleted'}: {len(gone)}")
    return 0


def _record(model: Published) -> dict[str, Any]:
    return {**dataclasses.asdict(model), "on_disk": _is_here(model)}


def _is_here(model: Published) -> bool:
    return model.name in INCLUDED or hub.is_downloaded(model)


def _row(model: Published) -> tuple[str, ...]:
    return (
        model.name,
        model.language,
        "?" if model.dim is None else str(model.dim),
        "?" if model.megabytes is None else str(model.megabytes),
        model.form,
        "yes" if _is_here(model) else "no",
        model.licence,
        model.trained_on,
    )

"""`elmore models`: the published models."""

from __future__ import annotations

import argparse
import dataclasses

from elmore.cli import flags
from elmore.cli.report import write_json, write_result
from elmore.errors import ModelNotFound
from elmore.formats.catalog import CATALOG, Published

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore models
  elmore models --language en --json
"""

_COLUMNS = ("name", "language", "dim", "parameters", "MB", "licence", "trained on", "on disk")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--language", metavar="CODE", help="only models of this language (ISO 639)")
    flags.add_json(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """List the catalogue."""
    models = [m for m in CATALOG if args.language in (None, m.language)]
    if not models:
        known = ", ".join(sorted({model.language for model in CATALOG}))
        raise ModelNotFound(f"no model of language {args.language!r} is known; known are {known}")
    if args.json:
        write_json([{**dataclasses.asdict(model), "on_disk": _on_disk(model)} for model in models])
        return 0
    rows = [_COLUMNS, *(_row(model) for model in models)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(_COLUMNS))]
    write_result(
        "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )
    )
    return 0


def _row(model: Published) -> tuple[str, ...]:
    return (
        model.name,
        model.language,
        str(model.dim),
        f"{model.parameters:,}",
        str(model.megabytes),
        model.licence,
        model.trained_on,
        "yes" if _on_disk(model) else "no",
    )


def _on_disk(model: Published) -> bool:
    """Tell whether a model can be loaded by its name; nothing is downloaded by elmore yet."""
    return False

"""`elmore doctor`: what works on this machine, and what does not."""

from __future__ import annotations

import argparse

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import write_json, write_result

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore doctor
  elmore doctor --offline
  elmore doctor --json > report.json

The exit code is 1 if something failed. Notes are only worth knowing.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add(parser, "--offline")
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Look at everything and report."""
    from elmore.cli.doctor_checks import diagnose

    found = diagnose()
    if args.json:
        write_json(found.to_dict())
    else:
        write_result(str(found))
    return 0 if found.ok else 1

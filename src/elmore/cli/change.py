"""`elmore change`: words that two corpora use differently."""

from __future__ import annotations

import argparse
import dataclasses

from elmore.cli import flags
from elmore.cli.find import add_saved, check_saved, save, word_list
from elmore.cli.parsing import Parser
from elmore.cli.report import write_json, write_result

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore change novels/ news/
  elmore change uses-1900/ uses-2000/ --words cell,mouse,broadcast
  elmore change old/ new/ --top 1000 -o ranking.json
  elmore change old/ new/ -o change.svg

Both folders are from `elmore index`, with the same model. Words are ranked by the distance of their
mean uses beyond chance. p is from a permutation test; q corrects it for the number of words.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("old", metavar="OLD", help="folder that `elmore index` wrote")
    parser.add_argument("new", metavar="NEW", help="another one")
    parser.add_argument(
        "--words", metavar="LIST", help="words, separated by commas (default: all that both have)"
    )
    parser.add_argument(
        "--min-uses",
        type=flags.parse_count,
        default=20,
        metavar="N",
        help="leave out words with fewer uses in one of them (default: 20)",
    )
    parser.add_argument(
        "--permutations",
        type=flags.parse_count,
        default=999,
        metavar="N",
        help="random divisions of the permutation test (default: 999)",
    )
    flags.add(parser, "--top", type=flags.parse_count, default=20)
    add_saved(parser, ".html, .json, .txt, or a picture: .svg, .png, .pdf")
    flags.add(parser, "--seed")
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Print the words that changed most."""
    from elmore.senses.change import compare
    from elmore.senses.index import Index

    check_saved(args)
    found = compare(
        Index.open(args.old),
        Index.open(args.new),
        args.words and word_list(args.words),
        min_uses=args.min_uses,
        permutations=args.permutations,
        seed=args.seed,
    )
    found = dataclasses.replace(found, words=found.words[: args.top])
    if args.output:
        return save(args, found.save)
    if args.json:
        write_json(found.report.to_dict())
    else:
        write_result(str(found.report))
    return 0

"""`elmore senses`: the uses of a word, grouped by sense."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from elmore.base.messages import printable, spreadsheet_safe
from elmore.cli import flags
from elmore.cli.find import add_index_model, add_saved, check_saved, open_index, pattern, save
from elmore.cli.parsing import Parser
from elmore.cli.report import write_json, write_result
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from elmore.senses.groups import WordSenses

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore senses uses/ bank plant play
  elmore senses uses/ "run*" --max-senses 4 --json
  elmore senses uses/ bank --assign news.txt
  elmore senses uses/ bank play spring -o senses.svg

The number of senses is found, not given. Each sense is named by the substitutes that are typical of
it. --assign tags another text: line, position, word, sense, cosine and sentence, separated by tabs.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("index", metavar="INDEX", help="folder that `elmore index` wrote")
    parser.add_argument(
        "words", nargs="+", metavar="WORD", help="words, lists such as run,runs,ran, or patterns"
    )
    parser.add_argument(
        "--max-senses",
        type=flags.parse_count,
        default=8,
        metavar="N",
        help="the largest number of senses to try (default: 8)",
    )
    parser.add_argument("--assign", metavar="FILE", help="tag the words in this text instead")
    parser.add_argument("--examples", action="store_true", help="all examples, and shares by file")
    add_saved(
        parser, ".html, .json or .txt; a picture: .svg, .png, .pdf; vectors of senses: .vec, .bin"
    )
    flags.add(parser, "--seed")
    add_index_model(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Print the senses of words, or tag a text with them."""
    from elmore.senses.groups import save_senses
    from elmore.text.reading import check_inputs

    if args.assign and (args.json or args.output):
        raise ConfigError("--assign prints a table; leave out --json and -o")
    check_saved(args, ".vec", ".bin")
    if args.assign:
        check_inputs([args.assign], None)
    index = open_index(args, args.index)
    options = {"max_senses": args.max_senses, "seed": args.seed}
    found = [index.senses(pattern(word), **options) for word in args.words]
    if args.output:
        return save(args, partial(save_senses, found))
    if args.assign:
        for line in _tagged(args.assign, found):
            write_result(line)
    elif args.json:
        write_json([one.to_dict() for one in found])
    else:
        write_result("\n\n".join(str(one.report) if args.examples else repr(one) for one in found))
    return 0


def _tagged(file: str, found: Sequence[WordSenses]) -> Iterator[str]:
    from elmore.text.reading import read_input

    for number, line in read_input(file):
        sentence = found[0].index.tokenize(line)
        for senses in found:
            for position, sense, cosine in senses.assign_text(sentence):
                cells = (number, position, senses.word, sense, f"{cosine:.3f}", line)
                yield "\t".join(spreadsheet_safe(printable(str(cell))) for cell in cells)

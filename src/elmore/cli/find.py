"""`elmore find`: the uses of a word that are most similar to a given one."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import say, write_json, write_result

if TYPE_CHECKING:
    from elmore.senses.index import Index

__all__ = [
    "EXAMPLES",
    "add_arguments",
    "add_index_model",
    "add_saved",
    "check_saved",
    "open_index",
    "pattern",
    "run",
    "save",
    "word_list",
]

EXAMPLES = """\
  elmore find uses/ "She sat on the [bank] of the river"
  elmore find uses/ "They [ran] a shop" --word run,runs,ran,running -o ran.html
  elmore find uses/ "She sat on the [bank]" --word '*' --unlike "The [bank] lent money"

The word in brackets is the one to look for. --word 'run*' searches all words with that prefix,
--word '/bank(er|s)?/' those that a regular expression matches, and --word '*' all words.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("index", metavar="INDEX", help="folder that `elmore index` wrote")
    parser.add_argument("text", metavar="TEXT", help="sentence with one word in [brackets]")
    parser.add_argument("--word", metavar="PATTERN", help="words to search (default: the same)")
    for name, what in (("--like", "further example"), ("--unlike", "counterexample")):
        parser.add_argument(
            name, action="append", default=[], metavar="TEXT", help=f"{what}; may be repeated"
        )
    flags.add(parser, "--top", type=flags.parse_count, default=10)
    add_index_model(parser)
    parser.add_argument("--csv", action="store_true", help="print CSV")
    add_saved(parser, ".html, .csv, .json, .txt, or a picture: .svg, .png, .pdf")
    flags.add_common(parser)


def pattern(text: str) -> str | list[str]:
    """A word or pattern, or several words with commas between them."""
    return word_list(text) if "," in text and not text.startswith("/") else text


def word_list(text: str) -> list[str]:
    """Words with commas between them."""
    return [word for part in text.split(",") if (word := part.strip())]


def add_saved(parser: Parser, forms: str) -> None:
    """-o and --force, for results that a file can hold in several forms."""
    flags.add_output(parser, f"write it to a file instead: {forms}")


def check_saved(args: argparse.Namespace, *more: str) -> None:
    """Refuse a suffix of -o before the work; `more` are suffixes of this verb alone."""
    from elmore.report import PICTURES, check_suffix

    if args.output:
        check_suffix(Path(args.output), *PICTURES, *more)


def save(args: argparse.Namespace, write: Callable[..., None]) -> int:
    """Write a result to the file of -o."""
    write(args.output, overwrite=args.force)
    if not args.quiet:
        say(f"wrote '{args.output}'")
    return 0


def add_index_model(parser: Parser) -> None:
    """--model, --tokenizer and --threads, for verbs that read an index."""
    flags.add_model(parser, help="the model of the index, if it is not where it was")
    flags.add(parser, "--tokenizer", "--threads")


def open_index(args: argparse.Namespace, path: str) -> Index:
    """Open an index with the model of --model, if one is named."""
    from elmore.senses.index import Index

    model = flags.chosen_model(args) if args.model else None
    return Index.open(path, model=model, tokenizer=args.tokenizer, threads=args.threads)


def run(args: argparse.Namespace) -> int:
    """Print the most similar uses."""
    check_saved(args, ".csv")
    found = open_index(args, args.index).find(
        args.text,
        word=args.word and pattern(args.word),
        k=args.top,
        like=args.like,
        unlike=args.unlike,
    )
    if args.output:
        return save(args, found.save)
    if args.json:
        write_json(found.to_dict())
    elif args.csv:
        write_result(found.to_csv().rstrip("\n"))
    else:
        write_result("\n".join(found.lines(shutil.get_terminal_size((110, 24)).columns)))
    return 0

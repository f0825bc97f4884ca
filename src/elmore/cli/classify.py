"""`elmore classify`: label texts with a trained classifier, without torch."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from elmore.base.messages import shown
from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.tag import add_use, bilm, in_colour, prepare, write_all
from elmore.errors import ConfigError
from elmore.text.reading import read_input
from elmore.text.records import as_text

if TYPE_CHECKING:
    from elmore.tasks.predictions import Classified

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore classify "A joy from start to end."
  elmore classify --trained sentiment-5 reviews.txt
  elmore classify --trained my-classifier/ new.csv --text review -o labels.jsonl

classifiers that are included:
  sentiment    negative or positive (Stanford Sentiment Treebank)
  sentiment-5  from very negative to very positive

Train your own with `elmore task train classify`. A text file has one text per line; .csv, .tsv and
.jsonl have one per row. An INPUT with spaces in it that is not a file is a text.
"""
_FORMATS = ("text", "jsonl", "tsv")


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help="text files, tables, or texts in quotes; - or none for stdin",
    )
    parser.add_argument(
        "--text",
        "--column",
        metavar="COLUMN",
        dest="text",
        help="the column of the texts of a table",
    )
    flags.add(parser, "--tokenizer", "--limit")
    add_use(parser, "sentiment", _FORMATS)


def run(args: argparse.Namespace) -> int:
    """Classify each text."""
    kind = prepare(args, _FORMATS)
    _check_column(args)
    from elmore.tasks.own.light import classifier

    model = classifier(
        args.trained, elmo=bilm(args), threads=args.threads, tokenizer=args.tokenizer
    )
    colour = in_colour(args)
    texts = itertools.islice(_texts(args), args.limit)
    records: Iterator[str]
    if kind == "tsv":
        records = (_row(found, text) for text, found in model.answers(texts))
    else:
        records = model.lines(texts, kind, colour=colour)
    write_all(args, records)
    return 0


def _check_column(args: argparse.Namespace) -> None:
    """Refuse --text for what has no columns, before a model is loaded."""
    from elmore.tasks.data.labelled import is_table

    for word in args.inputs or ["-"] if args.text else ():
        if flags.is_sentence(word) or not is_table(word):
            what = "stdin" if word == "-" else f"'{shown(word, 60)}'"
            raise ConfigError(
                f"--text names a column, but {what} is not a .csv, .tsv or .jsonl file; leave it "
                "out"
            )


def _texts(args: argparse.Namespace) -> Iterator[str]:
    from elmore.tasks.data.labelled import Columns, is_table, read_texts

    for word in args.inputs or ["-"]:
        if flags.is_sentence(word):
            yield word
        elif is_table(word):
            rows = read_texts(word, Columns(text=args.text), labelled=False)
            yield from (as_text(row.text) for row in rows)
        else:
            yield from (line for _, line in read_input(word))


def _row(found: Classified, text: Any) -> str:
    label: Any = found.label
    named = ", ".join(label) if isinstance(label, tuple) else str(label)
    chance = "" if not isinstance(label, str) else f"{found.probabilities[label]:.4f}"
    cells = (cell.replace("\t", " ").splitlines() for cell in (named, chance, text))
    return "\t".join(map(" ".join, cells))

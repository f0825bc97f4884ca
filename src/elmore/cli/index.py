"""`elmore index`: the uses of words in a corpus, computed once."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import make_progress, say, several, write_json
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from elmore.base.messages import Progress
    from elmore.bulk.job import JobOptions
    from elmore.senses.index import Index

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore index corpus/*.txt -o uses/
  elmore index news.txt.gz --words bank,play,spring -o uses/
  elmore index wiki.txt --split-sentences --min-count 500 --max-uses 300 --workers 4 -o uses/

Then ask it: `elmore find`, `elmore senses`, `elmore change`. An interrupted run resumes when it is
started again.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_inputs(parser)
    flags.add_model(parser)
    flags.add_output(parser, "folder to create")
    parser.add_argument(
        "--words", metavar="LIST", help="words, separated by commas, or a file with one per line"
    )
    flags.add(
        parser,
        "--min-count",
        type=flags.parse_count,
        default=100,
        help="without --words: index the words that occur so often (default: 100)",
    )
    parser.add_argument(
        "--max-uses",
        type=flags.parse_count,
        default=1000,
        metavar="N",
        help="keep about N uses of a frequent word, a random sample (default: 1000)",
    )
    parser.add_argument(
        "--substitutes",
        type=lambda text: 0 if text == "0" else flags.parse_count(text),
        default=64,
        metavar="K",
        help="keep the K likeliest substitutes of each use; 0: compare by layers (default: 64)",
    )
    flags.add(
        parser,
        "--layers",
        default=None,
        help="also keep these layers of each use: mean, top, a number, or weights w0,w1,w2",
    )
    flags.add(parser, "--workers", help="processes (default: 1)")
    flags.add_compute(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Make an index."""
    with closing(make_progress(unit="sentences", quiet=args.quiet)) as progress:
        index = _build(args, progress)
    if args.json:
        write_json({"output": str(index.path), "words": len(index.words), "uses": len(index)})
    elif not args.quiet:
        done = f"{several(len(index), 'use')} of {several(len(index.words), 'word')}"
        say(f"indexed {done} in '{index.path}'")
    return 0


def _build(args: argparse.Namespace, progress: Progress) -> Index:
    from elmore.published.catalog import bundled_model
    from elmore.senses.indexing import build_index
    from elmore.text.reading import check_rereadable

    if args.output in (None, "-"):
        raise ConfigError("an index is a folder; pass -o FOLDER")
    check_rereadable(args.inputs)
    model = flags.chosen_model(args)
    options: JobOptions = {
        "tokenized": args.tokenized,
        "split_sentences": args.split_sentences,
        "field": args.field,
        "column": args.column,
        "conllu": args.conllu,
        "errors": args.errors,
        "tokenizer": args.tokenizer,
        "limit": args.limit,
        "device": args.device,
        "precision": args.precision,
        "batch_tokens": args.batch_tokens,
        "threads": args.threads or (None if (args.workers or 1) == 1 else 1),
    }
    if args.layers is not None:
        options["layers"] = args.layers
    return build_index(
        args.inputs,
        args.output,
        model=None if model == bundled_model() else model,
        words=None if args.words is None else _words(args.words),
        min_count=args.min_count,
        max_uses=args.max_uses,
        k=args.substitutes,
        workers=args.workers or 1,
        overwrite=args.force,
        progress=progress,
        report=lambda line: None if args.quiet else say(line),
        **options,
    )


def _words(text: str) -> list[str]:
    from elmore.cli.find import word_list
    from elmore.text.reading import read_input

    # A misspelt name of a file must not be taken for a word.
    if Path(text).is_file() or text.endswith(".txt"):
        return [line for _, line in read_input(text)]
    return word_list(text)

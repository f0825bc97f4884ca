"""`elmore tag`: label the tokens of sentences with a trained tagger, without torch."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, BinaryIO

from elmore.base.atomic import atomic_file
from elmore.base.messages import shown
from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import make_progress, reading_notes, say, several, write_result
from elmore.errors import ConfigError
from elmore.text.reading import Counts

__all__ = [
    "EXAMPLES",
    "add_arguments",
    "add_use",
    "bilm",
    "in_colour",
    "prepare",
    "run",
    "write_all",
]

EXAMPLES = """\
  elmore tag "Ada lives in Rome."
  elmore tag --trained chunk sentences.txt
  elmore tag --trained my-tagger/ sentences.txt.gz -o tagged.conll
  cat book.txt | elmore tag --split-sentences -o tagged.jsonl

taggers that are included:
  pos        universal and Penn tags (UD English-EWT)
  chunk      phrases: NP, VP, PP, ... (English Web Treebank)

Train your own with `elmore task train tag`. An INPUT with spaces in it that is not a file is a
sentence.
"""
_FORMATS = ("text", "jsonl", "conll")


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_inputs(parser, more=" or sentences in quotes")
    add_use(parser, "pos", _FORMATS)


def add_use(parser: Parser, default: str, formats: tuple[str, ...]) -> None:
    """What `tag` and `classify` share: the trained model, the output, and where to compute."""
    parser.add_argument(
        "--trained",
        metavar="NAME|FOLDER",
        default=default,
        help="an included model, the folder of your own, or owner/name on the hub (default: "
        "%(default)s)",
    )
    flags.add_model(parser, help="the biLM (default: the one that the model was trained with)")
    flags.add(
        parser,
        "--format",
        choices=formats,
        help=f"{', '.join(formats)} (default: from the suffix of -o, else text)",
    )
    flags.add_output(parser, "file to write; stdout by default")
    flags.add(parser, "--threads")
    flags.add_common(parser, json=False)


def run(args: argparse.Namespace) -> int:
    """Tag each line."""
    kind = prepare(args, _FORMATS)
    from elmore.tasks.own.light import tagger

    model = tagger(args.trained, elmo=bilm(args), threads=args.threads)
    counts = Counts()
    colour = in_colour(args)
    reader = flags.make_reader(args, model.elmo)
    sentences = itertools.islice(flags.read_words(reader, args.inputs, counts), args.limit)
    tokens = (sentence.tokens for sentence in sentences)
    write_all(args, model.lines(tokens, kind, colour=colour))
    notes = reading_notes(counts, model.elmo.checkpoint)
    if notes and not args.quiet:
        say(f"read {several(counts.sentences, 'sentence')}: {', '.join(notes)}")
    return 0


def prepare(args: argparse.Namespace, formats: tuple[str, ...]) -> str:
    """Check the inputs; the format that --format or the suffix of -o names."""
    flags.check_words(args, args.inputs)
    suffix = Path(args.output).suffix.lower().lstrip(".") if args.output else ""
    known = {"": "text", "txt": "text", "ndjson": "jsonl", "tsv": formats[-1]}
    named = args.format or known.get(suffix, suffix)
    if named not in formats:
        raise ConfigError(
            f"no format has the suffix .{shown(suffix, 20)}; use --format {', '.join(formats)}"
        )
    return str(named)


def in_colour(args: argparse.Namespace) -> bool:
    """Whether results go to a terminal, not to a file or a pipe."""
    to_file = args.output and args.output != "-"
    return not to_file and sys.stdout is not None and sys.stdout.isatty()


def bilm(args: argparse.Namespace) -> Any:
    """The biLM of --model, or None for the model's own."""
    if not args.model:
        return None
    from elmore.elmo import Elmo

    return Elmo(flags.read_model(flags.chosen_model(args)), threads=args.threads)


def write_all(args: argparse.Namespace, records: Iterable[str]) -> None:
    """Write records as they come; of files and stdin, say how fast they came."""
    start = time.perf_counter()
    number = 0
    with ExitStack() as stack:
        stream: BinaryIO | None = None
        if args.output and args.output != "-":
            stream = stack.enter_context(atomic_file(Path(args.output), overwrite=args.force))
        progress = stack.enter_context(
            closing(make_progress(unit="lines", quiet=args.quiet or stream is None))
        )
        for record in records:
            number += 1
            if stream is None:
                write_result(record)
            else:
                stream.write(f"{record}\n".encode("utf-8", "backslashreplace"))
            progress.update(1)
    seconds = time.perf_counter() - start
    if not args.quiet and not (args.inputs and all(map(flags.is_sentence, args.inputs))):
        say(f"{several(number, 'line')}, {number / seconds if seconds else 0:,.0f} lines/s")

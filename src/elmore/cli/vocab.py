"""`elmore vocab`: make a vocabulary from text, or inspect one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import make_progress, say, write_json, write_result
from elmore.errors import ConfigError
from elmore.report import aligned

if TYPE_CHECKING:
    from elmore.corpus.words import WordCounts
    from elmore.text.vocabulary import Vocabulary

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore vocab corpus/*.txt.gz --size 50000 -o vocab.txt
  elmore vocab corpus.txt --tokenized --min-count 3 > vocab.txt
  elmore vocab --show data/
"""

# 100, 200, 500, 1,000, ...: the sizes that --show lists.
_SIZES = tuple(k * 10**n for n in range(2, 8) for k in (1, 2, 5))
_N_SPECIALS = 3  # <S>, </S> and <UNK>


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_corpus(parser, "*")
    parser.add_argument(
        "--size", type=int, metavar="N", help="number of words, including <S> </S> <UNK>"
    )
    flags.add(parser, "--min-count")
    parser.add_argument(
        "--show",
        metavar="DATA",
        help="how much of the text in a prepared folder vocabularies of several sizes cover",
    )
    flags.add_output(parser, "file to create; - or none for stdout")
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Make a vocabulary file, or show what one would cover."""
    if args.show is not None:
        if args.inputs:
            raise ConfigError("--show takes a prepared folder and no INPUT; leave one of them out")
        return _show(args)
    if not args.inputs:
        raise ConfigError("no INPUT; name text files, or a prepared folder with --show")
    output = None if args.output in (None, "-") else Path(args.output)
    if output is None and args.json:
        raise ConfigError("--json would mix with the words on stdout; pass -o FILE")
    return _make(args, output)


def _make(args: argparse.Namespace, output: Path | None) -> int:
    from elmore.base.atomic import atomic_file
    from elmore.corpus.words import VocabularyChoice, count_words

    choice = VocabularyChoice.of(args.size, args.min_count)
    if output is not None and output.exists() and not args.force:
        raise ConfigError(f"'{output}' exists; pass --force to replace it")
    with closing(make_progress(unit="tokens", quiet=args.quiet)) as progress:
        counts = count_words(
            args.inputs,
            tokenized=args.tokenized,
            split_sentences=args.split_sentences,
            tokenizer=args.tokenizer,
            errors=args.errors,
            workers=args.workers,
            progress=progress,
        )
    words = choice.make(counts)
    if output is None:
        write_result(words.to_bytes().decode("utf-8").removesuffix("\n"))
    else:
        with atomic_file(output, overwrite=args.force) as stream:
            stream.write(words.to_bytes())
    report = _report(words, counts)
    if args.json:
        write_json({**report, "output": args.output})
    elif not args.quiet:
        say(
            f"{report['words']:,} words, <S> </S> <UNK> included, cover "
            f"{1 - report['oov_rate']:.2%} of {report['tokens']:,} tokens; "
            f"the text has {report['types']:,} different words"
        )
        if counts.pruned:
            say("note: counts are approximate, because rare words were dropped to save memory")
    return 0


def _report(words: Vocabulary, counts: WordCounts) -> dict[str, Any]:
    return {
        "words": len(words),
        "types": len(counts),
        "tokens": counts.n_tokens,
        "oov_rate": 1 - counts.covered(words) / counts.n_tokens,
    }


def _show(args: argparse.Namespace) -> int:
    from elmore.corpus.prepared import COUNTS, Prepared
    from elmore.corpus.words import read_counts

    prepared = Prepared.open(args.show)
    # Sorted by count, so the first n words are the vocabulary of size n.
    counts = (count for _, count in read_counts(prepared.folder / COUNTS))
    rows = [
        {
            "words": words,
            "count": count,
            "tokens": covered,
            "oov_rate": 1 - covered / prepared.n_tokens,
        }
        for words, count, covered in _coverage(counts)
    ]
    if args.json:
        write_json(rows)
        return 0
    head = ("words", "lowest count", "tokens covered", "not covered")
    table = [
        (f"{row['words']:,}", f"{row['count']:,}", f"{row['tokens']:,}", f"{row['oov_rate']:.2%}")
        for row in rows
    ]
    write_result(aligned([head, *table], right=range(len(head))))
    return 0


def _coverage(counts: Iterator[int]) -> Iterator[tuple[int, int, int]]:
    """Vocabulary size, count of its last word and tokens covered; last of all words."""
    size, covered, last = _N_SPECIALS, 0, 0
    for last in counts:
        size, covered = size + 1, covered + last
        if size in _SIZES:
            yield size, last, covered
    if size not in _SIZES and covered:
        yield size, last, covered

"""`elmore prepare`: turn text files into a corpus to train on."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import make_progress, say, write_json

if TYPE_CHECKING:
    from elmore.corpus.prepared import Prepared

__all__ = ["EXAMPLES", "Stopwatch", "add_arguments", "run"]

EXAMPLES = """\
  elmore prepare corpus/*.txt.gz -o data/
  elmore prepare books/*.txt --split-sentences --vocabulary 100000 -o data/
  elmore prepare train/* --tokenized --heldout-files 'heldout/*' --vocabulary vocab.txt -o data/

Blank lines separate documents. An interrupted run resumes when it is started again.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_corpus(parser, "+")
    flags.add_output(parser, "folder to create", required=True)
    parser.add_argument(
        "--vocabulary",
        type=_vocabulary,
        metavar="N|FILE",
        help="number of words, with <S> </S> <UNK>, or a vocabulary file (default: 50000 words, "
        "without those that occur once)",
    )
    flags.add(parser, "--min-count")
    flags.add(parser, "--heldout", default=0.005)
    parser.add_argument(
        "--heldout-files",
        action="append",
        default=[],
        metavar="FILE",
        help="hold out this file or pattern instead; may be repeated",
    )
    flags.add_seed(parser)
    parser.add_argument(
        "--shard-tokens",
        type=int,
        default=1_000_000,
        metavar="N",
        help="approximate tokens per shard (default: 1000000)",
    )
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Prepare a corpus."""
    from elmore.corpus.prepare import prepare

    watch = Stopwatch()
    with closing(make_progress(unit="tokens", quiet=args.quiet)) as progress:
        prepared = prepare(
            args.inputs,
            args.output,
            vocabulary=args.vocabulary,
            min_count=args.min_count,
            tokenized=args.tokenized,
            split_sentences=args.split_sentences,
            tokenizer=args.tokenizer,
            errors=args.errors,
            heldout=args.heldout,
            heldout_files=args.heldout_files,
            seed=args.seed,
            shard_tokens=args.shard_tokens,
            workers=args.workers,
            overwrite=args.force,
            progress=progress,
        )
    cost = watch.report(prepared.n_tokens + prepared.heldout.tokens)
    if args.json:
        write_json({**_facts(prepared), **cost})
    elif not args.quiet:
        for line in _lines(prepared, cost):
            say(line)
    return 0


# A file whose name is a number can be written as ./50000.
def _vocabulary(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _facts(prepared: Prepared) -> dict[str, Any]:
    return {
        "output": str(prepared.folder),
        "training": asdict(prepared.training),
        "heldout": asdict(prepared.heldout),
        "shards": len(prepared.shards),
        "vocabulary": len(prepared.vocabulary),
        "oov_rate": prepared.oov_rate,
        "heldout_oov_rate": prepared.heldout_oov_rate,
        "tokenizer": prepared.tokenizer,
        "notes": list(prepared.notes),
        "digest": prepared.digest,
    }


def _lines(prepared: Prepared, cost: dict[str, float]) -> list[str]:
    training, heldout = prepared.training, prepared.heldout
    oov = f"not in it: {prepared.oov_rate:.2%} of the training tokens"
    if heldout.tokens:
        oov += f", {prepared.heldout_oov_rate:.2%} of the held-out ones"
    return [
        f"training: {training.tokens:,} tokens, {training.sentences:,} sentences, "
        f"{training.documents:,} documents; shards: {len(prepared.shards)}",
        f"held out: {heldout.tokens:,} tokens, {heldout.sentences:,} sentences, "
        f"{heldout.documents:,} documents",
        f"vocabulary: {len(prepared.vocabulary):,} words; {oov}",
        f"time: {cost['seconds']:.1f} s; "
        f"{cost['tokens_per_cpu_second']:,.0f} tokens per CPU second",
        *(f"note: {note}" for note in prepared.notes),
        f"wrote '{prepared.folder}'",
    ]


class Stopwatch:
    """Measures elapsed and CPU time, child processes included."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), _cpu_seconds()

    def report(self, n_tokens: int) -> dict[str, float]:
        """What was spent since the start, and memory where the system reports it."""
        seconds = time.perf_counter() - self._start[0]
        cpu = _cpu_seconds() - self._start[1]
        report = {
            "seconds": round(seconds, 2),
            "cpu_seconds": round(cpu, 2),
            "tokens_per_cpu_second": round(n_tokens / max(cpu, 0.01)),
        }
        if sys.platform == "linux":  # macOS counts ru_maxrss in bytes, Linux in kilobytes
            import resource

            own, children = (
                resource.getrusage(who).ru_maxrss
                for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
            )
            report["peak_bytes_of_a_process"] = 1024 * max(own, children)
        return report


def _cpu_seconds() -> float:
    if sys.platform == "win32":
        return time.process_time()
    import resource

    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )

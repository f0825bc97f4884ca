"""`elmore perplexity`: how well a model predicts text."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import (
    make_progress,
    reading_notes,
    say,
    say_waiting,
    several,
    write_json,
    write_result,
)
from elmore.cli.training import warn_if_misleading
from elmore.errors import InputError
from elmore.report import aligned
from elmore.text.reading import Counts, check_inputs

if TYPE_CHECKING:
    from elmore.elmo import Elmo
    from elmore.language_model.perplexity import Perplexity

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore perplexity heldout.txt
  elmore perplexity news.txt.gz novels.txt.xz --model my-model --split-sentences
  head -n 1000 heldout.txt | elmore perplexity --tokenized --json

Perplexity is roughly how many words the model is choosing between at each step; lower is better.
It is computed with the full softmax, each sentence by itself. Words that are not in the vocabulary
are predicted as <UNK>; "without <UNK>" leaves these predictions out. Empty lines are not counted.
"""

_COLUMNS = ("file", "forward", "backward", "mean", "without <UNK>", "tokens", "sentences", "<UNK>")


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_model(parser)
    flags.add_inputs(parser, model_first=True)
    flags.add(parser, "--start")
    flags.add_compute(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Measure each file, and all of them together."""
    model, inputs = flags.model_and_inputs(args)
    checkpoint = flags.read_model(model)
    check_inputs(inputs, None)
    say_waiting(inputs, quiet=args.quiet)
    elmo, counts = flags.make_elmo(args, checkpoint), Counts()
    results = _measure(args, elmo, inputs or ["-"], counts)
    total = sum((result for _, result in results[1:]), start=results[0][1])
    if args.json:
        files = [{"file": name, **result.to_dict()} for name, result in results]
        report = {"model": checkpoint.origin, "start": args.start, "files": files}
        write_json({**report, "total": total.to_dict()})
    else:
        rows = results if len(results) == 1 else [*results, ("total", total)]
        write_result(_table(rows))
    warn_if_misleading(total.oov_rate, quiet=args.quiet)
    notes = reading_notes(counts, checkpoint)
    if notes and not args.quiet:
        say(f"read {several(counts.sentences, 'sentence')}: {', '.join(notes)}")
    return 0


def _measure(
    args: argparse.Namespace, elmo: Elmo, inputs: Sequence[str], counts: Counts
) -> list[tuple[str, Perplexity]]:
    """Measure the files one by one; those that --limit does not reach are left out."""
    from elmore.embedding.stream import BATCH_TOKENS
    from elmore.language_model.perplexity import perplexity

    results: list[tuple[str, Perplexity]] = []
    with closing(make_progress(unit="sentences", quiet=args.quiet)) as progress:
        for name in inputs:
            left = None if args.limit is None else args.limit - counts.sentences
            if left == 0:
                break  # --limit counts over all files
            shown = "stdin" if name == "-" else name
            read = itertools.islice(flags.make_reader(args, elmo).read([name], counts), left)
            try:
                result = perplexity(
                    elmo,
                    (sentence.tokens for _, sentence in read),
                    tokenized=True,
                    batch_tokens=args.batch_tokens or BATCH_TOKENS,
                    progress=progress,
                )
            except InputError as error:
                if error.file is None:  # there was no sentence
                    raise InputError(str(error), file=shown) from None
                raise
            results.append((shown, result))
    return results


def _table(results: Sequence[tuple[str, Perplexity]]) -> str:
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for name, result in results:
        rows.append(
            (
                name,
                f"{result.forward:.2f}",
                "none" if result.backward is None else f"{result.backward:.2f}",
                f"{result.mean:.2f}",
                f"{result.without_unknown:.2f}",
                str(result.n_tokens),
                str(result.n_sentences),
                f"{result.oov_rate:.2%}",
            )
        )
    return (
        f"{aligned(rows, right=range(1, len(_COLUMNS)))}\n"
        "tokens: predictions per direction, the words and one marker per sentence; "
        "<UNK>: share of the words"
    )

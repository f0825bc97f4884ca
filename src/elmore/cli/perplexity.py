"""`elmore perplexity`: how well a model predicts text."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from elmore.cli import flags
from elmore.cli.report import make_progress, say, write_json, write_result
from elmore.errors import InputError
from elmore.report import aligned
from elmore.text.reading import Counts, check_inputs

if TYPE_CHECKING:
    from elmore.embedding.elmo import Elmo
    from elmore.formats.checkpoint import Checkpoint
    from elmore.language_model.perplexity import Perplexity

__all__ = ["EXAMPLES", "add_arguments", "notes", "run"]

EXAMPLES = """\
  elmore perplexity my-model heldout.txt
  elmore perplexity my-model news.txt.gz novels.txt.xz --split-sentences
  head -n 1000 heldout.txt | elmore perplexity my-model --tokenized --json

Full softmax, every sentence on its own. Words that the vocabulary lacks are predicted as <UNK>;
"without <UNK>" leaves these predictions out.
"""

_COLUMNS = ("file", "forward", "backward", "mean", "without <UNK>", "tokens", "sentences", "<UNK>")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    flags.add_model_argument(parser)
    flags.add_inputs(parser)
    flags.add_start(parser)
    flags.add_compute(parser)
    flags.add_json(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Measure each file, and all of them together."""
    model, rest = flags.split_model(args.model)
    inputs = [*rest, *args.inputs] or ["-"]
    checkpoint = flags.read_model(model)
    check_inputs(inputs, None)
    elmo, counts = flags.make_elmo(args, checkpoint), Counts()
    results = _measure(args, elmo, inputs, counts)
    total = sum((result for _, result in results[1:]), start=results[0][1])
    if args.json:
        files = [{"file": name, **result.to_dict()} for name, result in results]
        report = {"model": checkpoint.origin, "start": args.start, "files": files}
        write_json({**report, "total": total.to_dict()})
    else:
        rows = results if len(results) == 1 else [*results, ("total", total)]
        write_result(_table(rows))
    found = notes(counts, checkpoint)
    if counts.empty:
        found.insert(0, f"{counts.empty} empty, left out")
    if found and not args.quiet:
        say(f"read {counts.sentences} sentences: {', '.join(found)}")
    return 0


def _measure(
    args: argparse.Namespace, elmo: Elmo, inputs: Sequence[str], counts: Counts
) -> list[tuple[str, Perplexity]]:
    """Measure the files one by one; those that --limit does not reach are left out."""
    from elmore.embedding.stream import BATCH_TOKENS
    from elmore.language_model.perplexity import perplexity

    results: list[tuple[str, Perplexity]] = []
    progress = make_progress(unit="sentences", quiet=args.quiet)
    try:
        for name in inputs:
            left = None if args.limit is None else args.limit - counts.sentences
            if left == 0:
                break
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
    finally:
        progress.close()
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
    table = aligned(rows, right=range(1, len(_COLUMNS)))
    return (
        f"{table}\nfull softmax; tokens: predictions in each direction, the words and one marker a "
        "sentence; <UNK>: share of the words"
    )


# --------------------------------------------------------------------------- shared with `score`


def notes(counts: Counts, checkpoint: Checkpoint) -> list[str]:
    """Say what was met that a reader of the numbers should know."""
    found = []
    if counts.cut and checkpoint.alphabet is not None:
        found.append(f"{counts.cut} tokens cut at {checkpoint.alphabet.max_chars - 2} characters")
    if counts.replaced:
        found.append(f"{counts.replaced} lines with invalid UTF-8 replaced")
    if counts.skipped:
        found.append(f"{counts.skipped} lines with invalid UTF-8 skipped")
    return found

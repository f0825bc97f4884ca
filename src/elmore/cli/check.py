"""`elmore check`: whether a text fits a model, and what `embed` would cost."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from elmore.base.messages import readable_bytes, readable_time
from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import say_waiting, write_json, write_result
from elmore.report import aligned
from elmore.text.reading import Counts, check_inputs

if TYPE_CHECKING:
    from elmore.embedding.embed_cost import EmbedCost
    from elmore.text.sentence import Sentence

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore check reviews.txt
  elmore check corpus/*.txt.gz --model my-model --tokenized --json
  elmore check notes.txt --split-sentences --layers all --dtype float16

The first sentences are embedded to predict time, memory and size for the complete text.
"""

# Tokens of the sample that is embedded; its words are as varied as those of the text.
_SAMPLE = 20_000


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_model(parser)
    flags.add_inputs(parser)
    flags.add(parser, "--layers", "--pool", "--start")
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16"),
        default="float32",
        help="type of the stored vectors (default: float32)",
    )
    flags.add_compute(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Read the text, then embed a sample of it."""
    from elmore.embedding.embed_cost import predict_cost
    from elmore.embedding.text_check import check_text
    from elmore.options import Output

    output = Output(layers=args.layers, pool=args.pool, dtype=args.dtype)
    checkpoint = flags.read_model(flags.chosen_model(args))
    check_inputs(args.inputs, None)
    say_waiting(args.inputs, quiet=args.quiet)
    elmo, sample = flags.make_elmo(args, checkpoint), _Sample()
    sentences = flags.make_reader(args, elmo).read(args.inputs, Counts())
    kept = sample.keeping(itertools.islice(sentences, args.limit))
    checked = check_text(checkpoint, kept, tokenized=args.tokenized)
    costs = predict_cost(elmo.engine, sample.sentences, checked.tokens, output)
    if args.json:
        embed = [dataclasses.asdict(cost) for cost in costs]
        write_json({"model": checkpoint.origin, **checked.to_dict(), "embed": embed})
    else:
        write_result("\n".join([str(checked), *_table(costs)]))
    return 0


class _Sample:
    """The first sentences of a stream."""

    def __init__(self) -> None:
        self.sentences: list[tuple[str, Sentence]] = []
        self._tokens = 0

    def keeping(self, stream: Iterator[tuple[str, Sentence]]) -> Iterator[tuple[str, Sentence]]:
        for item in stream:
            if self._tokens < _SAMPLE:
                self.sentences.append(item)
                self._tokens += len(item[1])
            yield item


def _table(costs: list[EmbedCost]) -> list[str]:
    if not costs:
        return []
    rows = [("embed as", "size", "time", "memory")]
    for cost in costs:
        memory = "unknown" if cost.memory_bytes is None else readable_bytes(cost.memory_bytes)
        rows.append(
            (cost.format, readable_bytes(cost.size_bytes), readable_time(cost.seconds), memory)
        )
    return [aligned(rows, right=range(1, 4))]

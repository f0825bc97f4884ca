"""`elmore score`: log probabilities of sentences and tokens, and likely words."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import make_progress, reading_notes, say, several, write_result
from elmore.errors import ConfigError
from elmore.text.reading import Counts

if TYPE_CHECKING:
    from elmore.elmo import Elmo
    from elmore.text.sentence import Sentence

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore score "A plant grew ."
  elmore score lines.txt --model my-model --per-token --format tsv
  elmore score "The cat sat on the" --next --top 5
  echo "She sat on the bank ." | elmore score --substitutes --position 4

One record per line of input, blank lines too; all logarithms are natural, from the full softmax.
  forward   log p(token | tokens before it); end: of </S> after the last token
  backward  log p(token | tokens after it); begin: of <S> before the first token
  log_prob  of the sentence, mean of both directions
Words that are not in the vocabulary are scored as <UNK> and marked "unknown". An INPUT with spaces
in it that is not a file is a sentence.
"""

_DEFAULT_TOP = 10
_TSV = {
    "sentences": "log_prob forward backward perplexity n_tokens sentence",
    "tokens": "sentence position token forward backward unknown",
    "words": "sentence position rank word log_prob",
}


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_model(parser)
    flags.add_inputs(parser, model_first=True, more=" or sentences in quotes")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--per-token", action="store_true", help="also the value of each token")
    kind.add_argument("--next", action="store_true", help="words likely to follow each line")
    kind.add_argument("--previous", action="store_true", help="words likely to come before it")
    kind.add_argument(
        "--substitutes", action="store_true", help="words likely in the place of each token"
    )
    flags.add(parser, "--top", help=f"how many words (default: {_DEFAULT_TOP})")
    parser.add_argument(
        "--position", type=int, metavar="N", help="with --substitutes: only this token, from 0"
    )
    flags.add(
        parser,
        "--format",
        choices=("jsonl", "tsv"),
        default="jsonl",
        help="output format (default: jsonl)",
    )
    flags.add(parser, "--start")
    flags.add_compute(parser)
    flags.add_common(parser, json=False)


def run(args: argparse.Namespace) -> int:
    """Score each line, or list words for it."""
    _check(args)
    model, inputs = flags.model_and_inputs(args)
    checkpoint = flags.read_model(model)
    flags.check_words(args, inputs)
    elmo, counts = flags.make_elmo(args, checkpoint), Counts()
    read = flags.read_words(flags.make_reader(args, elmo), inputs, counts)
    missing = 0
    with closing(make_progress(unit="sentences", quiet=args.quiet)) as progress:
        records = _records(args, elmo, itertools.islice(read, args.limit))
        for number, record in enumerate(records):
            # With the first record, so that an early error leaves stdout empty.
            if args.format == "tsv" and number == 0:
                kind = "tokens" if args.per_token else "words" if _listed(args) else "sentences"
                write_result(_TSV[kind].replace(" ", "\t"))
            # A short sentence has no token at --position; it is counted, not an error.
            missing += args.position is not None and not record["substitutes"]
            if args.format == "jsonl":
                write_result(json.dumps(record, ensure_ascii=False))
            else:
                for row in _rows(args, number, record):
                    write_result("\t".join(map(_cell, row)))
            progress.update(1)
    notes = reading_notes(counts, checkpoint)
    if missing:
        notes.append(f"{missing} without a token {args.position}")
    if notes and not args.quiet:
        say(f"read {several(counts.sentences, 'sentence')}: {', '.join(notes)}")
    return 0


def _listed(args: argparse.Namespace) -> bool:
    return bool(args.next or args.previous or args.substitutes)


def _check(args: argparse.Namespace) -> None:
    if args.top is not None and not _listed(args):
        raise ConfigError("--top lists words; add --next, --previous or --substitutes")
    if args.top is not None and args.top < 1:
        raise ConfigError(f"--top {args.top} is not a number of words; use 1 or more")
    if args.position is not None and not args.substitutes:
        raise ConfigError("--position is for --substitutes; add it")
    if args.position is not None and args.position < 0:
        raise ConfigError(f"--position {args.position} is before the first token; count from 0")


def _records(
    args: argparse.Namespace, elmo: Elmo, sentences: Iterable[Sentence]
) -> Iterator[dict[str, Any]]:
    from elmore.embedding.stream import BATCH_TOKENS
    from elmore.language_model.likely_words import next_words, previous_words, substitutes
    from elmore.language_model.scores import pipe_scores

    top = args.top or _DEFAULT_TOP
    # Likely words are computed one sentence at a time, scores in batches.
    if args.next or args.previous:
        key, likely = ("next", next_words) if args.next else ("previous", previous_words)
        for sentence in sentences:
            yield {"tokens": sentence.tokens, key: _words(likely(elmo, sentence.tokens, top))}
    elif args.substitutes:
        for sentence in sentences:
            places = range(len(sentence)) if args.position is None else [args.position]
            words = [
                {
                    "position": place,
                    "token": sentence.tokens[place],
                    "words": _words(substitutes(elmo, sentence.tokens, place, top)),
                }
                for place in places
                if place < len(sentence)
            ]
            yield {"tokens": sentence.tokens, "substitutes": words}
    else:
        batch_tokens = args.batch_tokens or BATCH_TOKENS
        for result in pipe_scores(elmo, sentences, batch_tokens=batch_tokens):
            yield result.to_dict(per_token=args.per_token)


def _words(words: Iterable[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"word": word, "log_prob": round(value, 6)} for word, value in words]


def _rows(
    args: argparse.Namespace, number: int, record: dict[str, Any]
) -> Iterator[tuple[object, ...]]:
    """The rows of a record in a table."""
    tokens = record["tokens"]
    if args.per_token:
        backward = record["backward"] or [None] * len(tokens)
        if record["begin"] is not None:
            yield number, -1, "<S>", None, record["begin"], False
        for k, token in enumerate(tokens):
            yield number, k, token, record["forward"][k], backward[k], record["unknown"][k]
        yield number, len(tokens), "</S>", record["end"], None, False
    elif args.substitutes:
        for place in record["substitutes"]:
            for rank, word in enumerate(place["words"], 1):
                yield number, place["position"], rank, word["word"], word["log_prob"]
    elif _listed(args):
        position = len(tokens) if args.next else -1
        for rank, word in enumerate(record["next" if args.next else "previous"], 1):
            yield number, position, rank, word["word"], word["log_prob"]
    else:
        names = ("log_prob", "forward_log_prob", "backward_log_prob", "perplexity")
        yield (*(record[name] for name in names), len(tokens), " ".join(tokens))


def _cell(value: object) -> str:
    # A token may contain a tab or a line break, which would end the cell.
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return str(value).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")

"""`elmore score`: log probabilities of sentences and tokens, and likely words."""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from elmore.cli import flags
from elmore.cli.perplexity import notes
from elmore.cli.report import make_progress, say, write_result
from elmore.errors import ConfigError
from elmore.text.reading import Counts, check_inputs

if TYPE_CHECKING:
    from elmore.embedding.elmo import Elmo
    from elmore.language_model.scores import SentenceScore
    from elmore.text.sentence import Sentence

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  echo "A plant grew ." | elmore score my-model
  elmore score my-model lines.txt --per-token --format tsv
  echo "The cat sat on the" | elmore score my-model --next --top 5
  echo "She sat on the bank ." | elmore score my-model --substitutes --position 4

One record a line, blank lines too; logarithms are natural, the softmax is the full one.
  forward   log p(token | tokens before it); end: of </S> after the last
  backward  log p(token | tokens after it); begin: of <S> before the first
  log_prob  of the sentence, mean of both directions
Words that the vocabulary lacks are scored as <UNK> and marked "unknown".
"""

_DEFAULT_TOP = 10
_TSV = {
    "sentences": "log_prob forward backward perplexity n_tokens sentence",
    "tokens": "sentence position token forward backward unknown",
    "words": "sentence position rank word log_prob",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    flags.add_model_argument(parser)
    flags.add_inputs(parser)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--per-token", action="store_true", help="the value of every token too")
    kind.add_argument("--next", action="store_true", help="words likely to follow each line")
    kind.add_argument("--previous", action="store_true", help="words likely to stand before it")
    kind.add_argument(
        "--substitutes", action="store_true", help="words likely in the place of each token"
    )
    parser.add_argument(
        "--top", type=int, metavar="K", help=f"how many words (default: {_DEFAULT_TOP})"
    )
    parser.add_argument(
        "--position", type=int, metavar="N", help="with --substitutes: this token alone, from 0"
    )
    parser.add_argument(
        "-f",
        "--format",
        choices=("jsonl", "tsv"),
        default="jsonl",
        help="output format (default: jsonl)",
    )
    flags.add_start(parser)
    flags.add_compute(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Score each line, or list words for it."""
    _check(args)
    model, rest = flags.split_model(args.model)
    inputs = [*rest, *args.inputs] or ["-"]
    checkpoint = flags.read_model(model)
    check_inputs(inputs, None)
    elmo, counts = flags.make_elmo(args, checkpoint), Counts()
    read = itertools.islice(flags.make_reader(args, elmo).read(inputs, counts), args.limit)
    progress = make_progress(unit="sentences", quiet=args.quiet)
    missing = 0
    try:
        records = _records(args, elmo, (sentence for _, sentence in read))
        for number, record in enumerate(records):
            if args.format == "tsv" and number == 0:
                kind = "tokens" if args.per_token else "words" if _listed(args) else "sentences"
                write_result(_TSV[kind].replace(" ", "\t"))
            missing += args.position is not None and not record["substitutes"]
            if args.format == "jsonl":
                write_result(json.dumps(record, ensure_ascii=False))
            else:
                for row in _rows(args, number, record):
                    write_result("\t".join(map(_cell, row)))
            progress.update(1)
    finally:
        progress.close()
    found = notes(counts, checkpoint)
    if missing:
        found.append(f"{missing} without a token {args.position}")
    if counts.empty:
        found.insert(0, f"{counts.empty} empty")
    if found and not args.quiet:
        say(f"read {counts.sentences} sentences: {', '.join(found)}")
    return 0


def _listed(args: argparse.Namespace) -> bool:
    return bool(args.next or args.previous or args.substitutes)


def _check(args: argparse.Namespace) -> None:
    if args.top is not None and not _listed(args):
        raise ConfigError("--top lists words; add --next, --previous or --substitutes")
    if args.top is not None and args.top < 1:
        raise ConfigError(f"--top {args.top} asks for no word; use 1 or more")
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
            yield _score(result, args.per_token)


def _words(words: Iterable[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"word": word, "log_prob": round(value, 6)} for word, value in words]


def _score(result: SentenceScore, per_token: bool) -> dict[str, Any]:
    record: dict[str, Any] = {
        "tokens": result.tokens,
        "log_prob": _rounded(result.total),
        "forward_log_prob": _rounded(result.forward_total),
        "backward_log_prob": _rounded(result.backward_total),
        "perplexity": _rounded(result.perplexity),
    }
    if per_token:
        record["forward"] = [round(value, 6) for value in result.forward.tolist()]
        record["end"] = _rounded(result.end)
        backward = result.backward
        record["backward"] = (
            None if backward is None else [round(value, 6) for value in backward.tolist()]
        )
        record["begin"] = _rounded(result.begin)
        record["unknown"] = result.unknown.tolist()
    return record


def _rounded(value: float | None) -> float | None:
    # JSON has no infinity, which an absurd sentence may reach.
    return None if value is None or math.isinf(value) else round(value, 6)


def _rows(
    args: argparse.Namespace, number: int, record: dict[str, Any]
) -> Iterator[tuple[object, ...]]:
    """Turn a record into lines of a table."""
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
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return str(value).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")

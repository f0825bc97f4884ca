"""`elmore score`: probabilities of sentences and tokens, likely words, and perplexity."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from elmore.cli import options
from elmore.cli.console import Console, fitted, write_result
from elmore.errors import ConfigError, InputError
from elmore.report import aligned

if TYPE_CHECKING:
    from elmore.elmo import Elmo
    from elmore.language_model.perplexity import Perplexity
    from elmore.text.tokenizer import Sentence

_EXAMPLES = """\
  elmore score "A plant grew ."
  elmore score lines.txt --per-token --format tsv
  elmore score "The cat sat on the" --next --top 5
  echo "She sat on the bank ." | elmore score --substitutes --position 4
  elmore score heldout.txt --total

One record per line of input, blank lines too; all logarithms are natural, from the full softmax.
  forward   log p(token | tokens before it); end: of </S> after the last token
  backward  log p(token | tokens after it); begin: of <S> before the first token
  log_prob  of the sentence, mean of both directions
Words that are not in the vocabulary are scored as <UNK> and marked "unknown".

--total prints the perplexity of each file, and of all of them: roughly how many words the model is
choosing between at each step; lower is better. Each sentence is scored by itself. "without <UNK>"
leaves out the predictions of unknown words. Empty lines are not counted.
"""
_DEFAULT_TOP = 10
_TSV = {
    "sentences": "log_prob forward backward perplexity n_tokens sentence",
    "per_token": "sentence position token forward backward unknown",
    "words": "sentence position rank word log_prob",
}
_COLUMNS = ("file", "forward", "backward", "mean", "without <UNK>", "tokens", "sentences", "<UNK>")


@options.verb(_EXAMPLES)
def score(
    *,
    text: options.TextInput = options.text_input,
    kinds: dict[str, bool] = options.keywords(
        per_token=options.flag("Also the value of each token."),
        next=options.flag("Words likely to follow each line."),
        previous=options.flag("Words likely to come before it."),
        substitutes=options.flag("Words likely at the position of each token."),
        total=options.flag("The perplexity of each file and of all of them."),
    ),
    top: int | None = options.count(None, f"How many words, by default {_DEFAULT_TOP}.", "K"),
    position: int | None = options.count(
        None, "With --substitutes: only this token, from 0.", type=click.IntRange(0)
    ),
    form: str = options.choice(
        ["jsonl", "tsv"], "jsonl", "Output format of records.", names="-f --format"
    ),
    model: options.ModelChoice = options.model(),
    console: Console,
) -> None:
    """INPUT is a text file with one sentence per line, or a sentence in quotes; - or none reads
    stdin.
    """
    chosen = [kind for kind, wanted in kinds.items() if wanted]
    if len(chosen) > 1:
        raise ConfigError(
            "--per-token, --next, --previous, --substitutes and --total exclude each other; leave "
            "all but one out"
        )
    kind = chosen[0] if chosen else "sentences"
    if top is not None and kind not in ("next", "previous", "substitutes"):
        raise ConfigError("--top lists words; add --next, --previous or --substitutes")
    if position is not None and kind != "substitutes":
        raise ConfigError("--position is for --substitutes; add it")
    if console.json and kind != "total":
        raise ConfigError("--json is for --total; records are JSON lines without it")
    text.check(console)
    elmo = model.load(text.tokenizer)
    if kind == "total":
        _print_total(text, elmo, model.start, console)
        return
    missing = 0
    with console.progress("sentences", text.count(console)) as progress:
        records = _records(elmo, text.sentences(elmo), kind, top or _DEFAULT_TOP, position)
        for number, record in enumerate(records):
            # With the first record, so that an early error leaves stdout empty.
            if form == "tsv" and number == 0:
                write_result(_TSV.get(kind, _TSV["words"]).replace(" ", "\t"))
            # A short sentence has no token at --position; it is counted, not an error.
            missing += position is not None and not record["substitutes"]
            if form == "jsonl":
                write_result(json.dumps(record, ensure_ascii=False))
            else:
                for row in _rows(kind, number, record):
                    write_result("\t".join(map(_cell, row)))
            progress.update(1)
    notes = [f"{missing} without a token {position}"] if missing else []
    text.report(console, elmo.checkpoint, *notes)


def _records(
    elmo: Elmo, sentences: Iterable[Sentence], kind: str, top: int, position: int | None
) -> Iterator[dict[str, Any]]:
    from elmore.language_model.likely_words import next_words, previous_words, substitutes
    from elmore.language_model.scores import pipe_scores

    # Likely words are computed one sentence at a time, scores in batches.
    if kind in ("next", "previous"):
        likely = next_words if kind == "next" else previous_words
        for sentence in sentences:
            yield {"tokens": sentence.tokens, kind: _words(likely(elmo, sentence.tokens, top))}
    elif kind == "substitutes":
        for sentence in sentences:
            chosen = range(len(sentence)) if position is None else [position]
            words = [
                {
                    "position": k,
                    "token": sentence.tokens[k],
                    "words": _words(substitutes(elmo, sentence.tokens, k, top)),
                }
                for k in chosen
                if k < len(sentence)
            ]
            yield {"tokens": sentence.tokens, "substitutes": words}
    else:
        batch_tokens = elmo.engine.batch_tokens
        for result in pipe_scores(elmo, sentences, batch_tokens=batch_tokens):
            yield result.to_dict(per_token=kind == "per_token")


def _words(words: Iterable[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"word": word, "log_prob": round(value, 6)} for word, value in words]


def _rows(kind: str, number: int, record: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    """The rows of a record in a table."""
    tokens = record["tokens"]
    if kind == "per_token":
        backward = record["backward"] or [None] * len(tokens)
        if record["begin"] is not None:
            yield number, -1, "<S>", None, record["begin"], False
        for k, token in enumerate(tokens):
            yield number, k, token, record["forward"][k], backward[k], record["unknown"][k]
        yield number, len(tokens), "</S>", record["end"], None, False
    elif kind == "sentences":
        names = ("log_prob", "forward_log_prob", "backward_log_prob", "perplexity")
        yield (*(record[name] for name in names), len(tokens), " ".join(tokens))
    else:
        alone = {"position": len(tokens) if kind == "next" else -1, "words": record[kind]}
        for place in record[kind] if kind == "substitutes" else [alone]:
            for rank, word in enumerate(place["words"], 1):
                yield number, place["position"], rank, word["word"], word["log_prob"]


def _cell(value: object) -> str:
    # A token may contain a tab or a line break, which would end the cell.
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return str(value).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


# --------------------------------------------------------------------------- --total


def _print_total(text: options.TextInput, elmo: Elmo, start: str, console: Console) -> None:
    """Measure each input, and all of them together; --limit counts over all of them."""
    from elmore.language_model.perplexity import perplexity

    results: list[tuple[str, Perplexity]] = []
    with console.progress("sentences", text.count(console)) as progress:
        for word in text.words:
            if text.limit is not None and text.counts.sentences >= text.limit:
                break
            label = "stdin" if word == "-" else word
            tokens = (sentence.tokens for sentence in text.sentences(elmo, [word]))
            size = elmo.engine.batch_tokens
            try:
                result = perplexity(
                    elmo, tokens, tokenized=True, batch_tokens=size, progress=progress
                )
            except InputError as error:
                # Without a file: there was no sentence.
                raise error if error.file else InputError(str(error), file=label) from None
            results.append((label, result))
    (_, first), *others = results
    total = sum((result for _, result in others), start=first)
    report = {
        "model": elmo.checkpoint.origin,
        "start": start,
        "files": [{"file": name, **result.to_dict()} for name, result in results],
        "total": total.to_dict(),
    }
    console.result(report, fitted(_table([*results, ("total", total)] if others else results)))
    console.warn_if_misleading(total.oov_rate)
    text.report(console, elmo.checkpoint)


def _table(results: Iterable[tuple[str, Perplexity]]) -> str:
    rows = [
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
        for name, result in results
    ]
    return (
        f"{aligned([_COLUMNS, *rows], right=range(1, len(_COLUMNS)))}\n"
        "tokens: predictions per direction, the words and one marker per sentence; "
        "<UNK>: share of the words"
    )

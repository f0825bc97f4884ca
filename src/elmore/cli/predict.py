"""`elmore predict`: label text with a trained model."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.base.messages import shown, wants_colour
from elmore.cli import options
from elmore.cli.console import Console, line_writer, several
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from elmore.cli.options import ModelChoice, TextInput
    from elmore.tasks.predictions import Predictor

_EXAMPLES = """\
  elmore predict pos "Ada lives in Rome."
  elmore predict sentiment "A joy from start to end."
  elmore predict my-tagger/ sentences.txt.gz -o tagged.conll
  elmore predict my-classifier/ new.csv --column review -o labels.csv
  cat book.txt | elmore predict chunk --split-sentences -o tagged.jsonl

included models:
  pos          universal and Penn tags (UD English-EWT)
  chunk        phrases: NP, VP, PP, ... (English Web Treebank)
  sentiment    negative or positive (Stanford Sentiment Treebank)
  sentiment-5  from very negative to very positive

lines of a text file, by the task of the model:
  tag, ner, srl, sentiment   one sentence
  classify                   one text
  nli                        premise TAB hypothesis
  qa                         question TAB paragraph
  coref                      documents, separated by blank lines

tag and classify also read .csv, .tsv and .jsonl files, with one text per row. -o labels.csv keeps
their columns and adds those of the labels.
"""
_FORMATS = {
    "text": (".txt", ".text"),
    "jsonl": (".jsonl", ".ndjson"),
    **{name: (f".{name}",) for name in ("conll", "csv", "tsv")},
}


@options.verb(_EXAMPLES, json=False)
def predict(
    *,
    trained: str = options.argument("MODEL"),
    text: TextInput = options.text_input,
    form: str | None = options.format(_FORMATS, "text"),
    output: Path | None = options.output("File to write; stdout by default."),
    force: bool = options.force,
    model: ModelChoice = options.model(
        *("batch_tokens", "start"),
        help="The biLM, by default the one that the trained model was trained with.",
    ),
    console: Console,
) -> None:
    """MODEL is an included model, the folder of your own, or owner/name on the hub. INPUT is a text
    file, a table, or a sentence in quotes; - or none reads stdin.
    """
    form = options.format_of(form, output, _FORMATS, "text")
    text.check(console, output)
    tables = _tables(text)
    from elmore.tasks.folder import load

    predictor = load(
        trained,
        light=True,
        elmo=model.load_named(),
        threads=model.threads,
        tokenizer=text.tokenizer,
        device=model.device,
    )
    colour = output is None and wants_colour(sys.stdout)
    lines = _lines(predictor, text, tables, form, colour=colour)
    number, start = 0, time.perf_counter()
    with line_writer(output, force) as write, console.progress("lines") as progress:
        for line in lines:
            number += 1
            write(line)
            progress.update(1)
    seconds = max(time.perf_counter() - start, 1e-9)
    if output is not None:
        n_tokens = text.counts.tokens
        speed = f", {n_tokens / seconds:,.0f} tokens per second" if n_tokens else ""
        console.say(f"{several(number, 'line')}{speed}")
    if text.counts.sentences:
        text.report(console, predictor.elmo.checkpoint)  # type: ignore[attr-defined]


def _tables(text: TextInput) -> list[str]:
    """The inputs that are tables; refuses --column for others, before a model is loaded."""
    from elmore.tasks.data.labelled import is_table

    tables = [word for word in text.words if not options.is_sentence(word) and is_table(word)]
    if text.column is not None and (others := set(text.words) - set(tables)):
        what = "stdin" if "-" in others else f"'{shown(min(others), 60)}'"
        raise ConfigError(f"--column is for .csv, .tsv and .jsonl files, not {what}")
    return tables


def _lines(
    predictor: Predictor[Any, Any], text: TextInput, tables: list[str], form: str, *, colour: bool
) -> Iterator[str]:
    """What to write, in the order of the inputs."""
    from elmore.tasks.data.labelled import label_table

    column = None if text.column is None else str(text.column)
    items = _items(predictor, text, tables, column)
    if tables and form in ("csv", "tsv", "jsonl"):
        if len(text.words) > 1 and form != "jsonl":
            raise ConfigError(f"{form} has one header; pass one INPUT at a time")
        for word in text.words:
            if word not in tables:
                raise ConfigError(f"'{shown(word, 60)}' is not a table like the others")
            yield from itertools.islice(label_table(predictor, word, form, text=column), text.limit)
    elif form in ("csv", "tsv"):
        yield from label_table(predictor, {"text": list(items)}, form)
    else:
        yield from predictor.lines(items, form, colour=colour)


def _items(
    predictor: Predictor[Any, Any], text: TextInput, tables: list[str], column: str | None
) -> Iterator[Any]:
    """What to predict on: tokens for a tagger, else what the task makes of lines."""
    from elmore.tasks.data.labelled import read_texts
    from elmore.text.reading import read_input

    elmo = getattr(predictor, "elmo", None)
    if predictor.name == "tag" and elmo is not None and not tables:
        yield from (sentence.tokens for sentence in text.sentences(elmo))
        return
    if text.tokenized or text.split_sentences or text.conllu:
        raise ConfigError(
            "--tokenized, --split-sentences and --conllu are for text files and taggers; leave "
            "them out"
        )

    def each() -> Iterator[Any]:
        for word in text.words:
            if word in tables:
                rows = read_texts(word, text=column, labelled=False)
                yield from (row.text for row in rows)
            elif options.is_sentence(word):
                yield from predictor.items(enumerate(word.split("\n"), 1), "the argument")
            else:
                yield from predictor.items(read_input(word), "stdin" if word == "-" else word)

    yield from itertools.islice(each(), text.limit)

"""`elmore train`, `evaluate` and `predict`: taggers, classifiers and the six tasks of the paper."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmore.base.messages import shown, wants_colour
from elmore.base.optional import require
from elmore.cli import options
from elmore.cli.console import Console, check_picture, fitted, line_writer, several
from elmore.errors import ConfigError
from elmore.tasks import OWN_TASKS, TASKS

if TYPE_CHECKING:
    from elmore.report import Report
    from elmore.tasks.predictions import Predictor

_TRAIN = f"""\
  elmore train classify reviews.csv --column review --label stars -o reviews/
  elmore train tag en_ewt-ud-train.conllu --label upos -o tagger/ --curve
  elmore train ner train.conll --dev dev.conll --vectors glove.txt -o ner/
  elmore train ner train.conll --dev dev.conll --no-elmo --seeds 5 -o baseline/
  elmore train ner train.conll --dev dev.conll -o ner/ --resume

tasks:
{chr(10).join(f"  {name:<9}  {task.summary}" for name, task in TASKS.items())}

Ctrl-C saves the run and stops it; --resume continues.
"""
_EVALUATE = """\
  elmore evaluate ner/ test.conll
  elmore evaluate reviews/ test.csv --plot confusions.svg --json
"""
_column = options.option(
    "tag, classify: CSV, TSV or JSON lines: the column or key of the text or the tokens.",
    "NAME",
    names="--column",
)
_COLUMNS = {
    "text": _column,
    "label": options.option(
        "tag, classify: of the labels; a number from 1 in CoNLL columns; upos, xpos, feats or "
        "upos+xpos in CoNLL-U.",
        "COLUMN",
    ),
    "separator": options.option("classify: between several labels of a text.", "TEXT"),
}

_bilm = options.model(
    *("batch_tokens", "start"),
    help="The biLM, by default the one that the trained model was trained with.",
)


def _checked(
    task: str, columns: dict[str, str | None], threads: int | None, **flags: object
) -> dict[str, Any]:
    """The columns that are named; refuses a machine that lacks what the end of a run needs."""
    named = {name: value for name, value in columns.items() if value is not None}
    given = ["--column" if name == "text" else f"--{name}" for name in named]
    given += [f"--{name}" for name, value in flags.items() if value]
    if given and task not in OWN_TASKS:
        names = ", ".join(given)
        raise ConfigError(f"{names}: only for {' and '.join(OWN_TASKS)}; leave it out for {task}")
    if "separator" in named and task != "classify":
        raise ConfigError(f"--separator: only for classify; leave it out for {task}")
    torch, _, _ = (require(name, "tasks", "a task") for name in ("torch", "sklearn", "seqeval"))
    if threads is not None:
        torch.set_num_threads(threads)  # a global setting, so only a program may change it
    return named


@options.verb(_TRAIN)
def train(
    *,
    task: str = options.argument("TASK", type=click.Choice(tuple(TASKS))),
    inputs: tuple[str, ...] = options.argument("INPUT...", nargs=-1, required=True),
    dev: tuple[str, ...] = options.repeated("Development data, to choose the best epoch"),
    test: tuple[str, ...] = options.repeated("Test data, scored last"),
    columns: dict[str, str | None] = options.keywords(**_COLUMNS),
    no_elmo: bool = options.flag("Train the baseline without ELMo."),
    tokenizer: str | None = options.tokenizer(),
    curve: bool = options.flag("tag, classify: also train on parts of the data."),
    run: options.RunChoice = options.group(options.RunChoice, without=("tensorboard",)),
    seeds: int = options.seeds,
    settings: dict[str, Any] = options.keywords(vectors=options.vectors, cache=options.cache),
    model: options.ModelChoice = options.model("batch_tokens", "start"),
    console: Console,
) -> None:
    """INPUT are labelled files (plain, gz, bz2, xz or zst)."""
    if no_elmo and model.model is not None:
        raise ConfigError("--no-elmo and --model exclude each other; leave one out")
    named = _checked(task, columns, model.threads, curve=curve)
    from elmore.tasks.fitting import over_seeds
    from elmore.tasks.folder import task_class
    from elmore.tasks.recipe import TaskRecipe
    from elmore.training.display import Display

    output = run.output
    _check_folder(output, several=seeds > 1)
    elmo = None if no_elmo else model.load(tokenizer)
    kind: Any = task_class(task)  # those of `OWN_TASKS` take columns, and have more methods
    chosen = TaskRecipe.load(run.recipe, task, kind.sizes, run.settings)
    reports: dict[int, Report] = {}
    for number in range(run.seed, run.seed + seeds):
        folder = output if seeds == 1 else output / f"seed-{number}"
        prefix = f"seed {number}: " if seeds > 1 else ""
        with (
            console.progress("sentences") as progress,
            Display(
                folder, metric=kind.metric, resume=run.resume, prefix=prefix, quiet=console.quiet
            ) as display,
        ):
            learner = kind(
                elmo,
                recipe=chosen,
                seed=number,
                device=model.device,
                progress=progress,
                **settings,
                **named,
            )
            report = learner.fit(
                inputs,
                dev=dev or None,
                test=test or None,
                out=folder,
                resume=run.resume,
                overwrite=run.force,
                progress=display.show,
            )
            if curve:
                rows = learner.curve(inputs, dev=dev or None)
                tables = {**report.tables, "learning curve": rows}
                report = dataclasses.replace(report, tables=tables)
        reports[number] = report
    report = over_seeds(reports) if seeds > 1 else reports[run.seed]
    report.save(output / "results.json", overwrite=True)
    _show(report, console)
    where = output if seeds == 1 else f"{output / f'seed-{run.seed}'} and its neighbours"
    console.say(f"the model is in {where}")


def _check_folder(out: Path, *, several: bool) -> None:
    """Keep runs with one and with several seeds apart: both write results.json."""
    from elmore.training.run import Run

    if several and Run(out).exists():
        raise ConfigError(f"'{out}' has a run with one seed; use another folder")
    if not several and any(Run(folder).exists() for folder in out.glob("seed-*")):
        raise ConfigError(f"'{out}' has runs with several seeds; use another folder")


def _show(report: Report, console: Console) -> None:
    scores = "  ".join(f"{name} {value:.2f}" for name, value in report.metrics.items())
    # A report without tables shows the scores itself.
    text = f"{report}\n\n{scores}" if scores and report.tables else str(report)
    console.result(report.to_dict(), fitted(text))


@options.verb(_EVALUATE)
def evaluate(
    *,
    trained: str = options.argument("MODEL"),
    inputs: tuple[str, ...] = options.argument("INPUT...", nargs=-1, required=True),
    columns: dict[str, str | None] = options.keywords(**_COLUMNS),
    plot: Path | None = options.path(
        "tag, classify: draw the confusions: svg, png or pdf.", "PICTURE"
    ),
    force: bool = options.force,
    cache: Path | None = options.cache,
    model: options.ModelChoice = _bilm,
    console: Console,
) -> None:
    """MODEL is the folder of `elmore train`, or the name of an included model; INPUT are labelled
    files.
    """
    from elmore.tasks.folder import find_model, load, read_facts

    task_name = read_facts(find_model(trained)).task
    named = _checked(task_name, columns, model.threads, plot=plot)
    check_picture(plot, force=force)
    task: Any = load(
        trained,
        elmo=model.load_named(),
        device=model.device,
        threads=model.threads,
        cache=cache,
        **named,
    )
    _show(task.evaluate(inputs), console)
    if plot is not None:
        from elmore.analysis.plots import plot_confusions

        examples = task.examples(inputs)
        pairs = task.pairs(examples, task.predict_examples(examples))
        plot_confusions(pairs, plot, overwrite=force)


_PREDICT = """\
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


@options.verb(_PREDICT, json=False)
def predict(
    *,
    trained: str = options.argument("MODEL"),
    text: options.TextInput = options.group(options.TextInput, column=_column),
    form: str | None = options.format(_FORMATS, "text"),
    output: Path | None = options.output("File to write; stdout by default."),
    force: bool = options.force,
    model: options.ModelChoice = _bilm,
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


def _tables(text: options.TextInput) -> list[str]:
    """The inputs that are tables; refuses --column for others, before a model is loaded."""
    from elmore.tasks.data.labelled import is_table

    tables = [word for word in text.words if not options.is_sentence(word) and is_table(word)]
    if tables and text.errors != "strict":
        raise ConfigError("--errors is for text files; convert the tables to UTF-8")
    if text.column is not None and (others := set(text.words) - set(tables)):
        what = "stdin" if "-" in others else f"'{shown(min(others), 60)}'"
        raise ConfigError(f"--column is for .csv, .tsv and .jsonl files, not {what}")
    return tables


def _lines(
    predictor: Predictor[Any, Any],
    text: options.TextInput,
    tables: list[str],
    form: str,
    *,
    colour: bool,
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
    predictor: Predictor[Any, Any], text: options.TextInput, tables: list[str], column: str | None
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
                lines = read_input(word, text.errors)
                yield from predictor.items(lines, "stdin" if word == "-" else word)

    yield from itertools.islice(each(), text.limit)

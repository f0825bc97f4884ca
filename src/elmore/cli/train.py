"""`elmore train` and `elmore evaluate`: taggers, classifiers and the paper's six tasks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmore.base.optional import require
from elmore.cli import options
from elmore.cli.console import Console, check_picture, fitted
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from elmore.cli.options import ModelChoice, RunChoice
    from elmore.report import Report

_TRAIN = """\
  elmore train classify reviews.csv --column review --label stars -o reviews/
  elmore train tag en_ewt-ud-train.conllu --label upos -o tagger/ --curve
  elmore train ner train.conll --dev dev.conll --vectors glove.txt -o ner/
  elmore train ner train.conll --dev dev.conll --no-elmo --seeds 5 -o baseline/
  elmore train ner train.conll --dev dev.conll -o ner/ --resume

tasks:
  tag        your own tags or spans (CoNLL, CSV, JSONL)
  classify   your own classes (CSV, JSONL)
  ner        names and what they are names of (CoNLL columns)
  sentiment  five-way sentiment (SST trees)
  nli        does one sentence follow from another (SNLI)
  srl        who did what to whom (CoNLL-2012 PropBank columns)
  qa         the answer to a question in a paragraph (SQuAD)
  coref      which words corefer (CoNLL-2012 clusters)

Ctrl-C saves the run and stops it; --resume continues.
"""
_EVALUATE = """\
  elmore evaluate ner/ test.conll
  elmore evaluate reviews/ test.csv --plot confusions.svg --json
"""
_TASKS = ("tag", "classify", "ner", "sentiment", "nli", "srl", "qa", "coref")
# Tasks on data of any form, whose columns have names.
_OWN = ("tag", "classify")


def _columns(
    *,
    column: str | int | None = options.column,
    label: str | None = options.option(
        "tag, classify: of the labels; a number from 1 in CoNLL columns; upos, xpos, feats or "
        "upos+xpos in CoNLL-U.",
        "COLUMN",
    ),
    separator: str | None = options.option("classify: between several labels of a text.", "TEXT"),
) -> dict[str, str]:
    """The columns that are named."""
    text = None if column is None else str(column)
    values = {"text": text, "label": label, "separator": separator}
    return {name: value for name, value in values.items() if value is not None}


def _check(task: str, columns: dict[str, str], threads: int | None, **flags: object) -> None:
    """Refuse what a task does not have, and a machine that lacks what the end of a run needs."""
    given = ["--column" if name == "text" else f"--{name}" for name in columns]
    given += [f"--{name}" for name, value in flags.items() if value]
    if given and task not in _OWN:
        names = ", ".join(given)
        raise ConfigError(f"{names}: only for {' and '.join(_OWN)}; leave it out for {task}")
    torch, _, _ = (require(name, "tasks", "a task") for name in ("torch", "sklearn", "seqeval"))
    if threads is not None:
        torch.set_num_threads(threads)  # a global setting, so only a program may change it


@options.verb(_TRAIN)
def train(
    *,
    task: str = options.argument("TASK", type=click.Choice(_TASKS)),
    inputs: tuple[str, ...] = options.argument("INPUT...", nargs=-1, required=True),
    dev: tuple[str, ...] = options.option(
        "Development data, to choose the best epoch.", "FILE", multiple=True
    ),
    test: tuple[str, ...] = options.option("Test data, scored last.", "FILE", multiple=True),
    columns: dict[str, str] = options.group(_columns),
    no_elmo: bool = options.flag("Train the baseline without ELMo."),
    tokenizer: str | None = options.tokenizer(),
    curve: bool = options.flag("tag, classify: also train on parts of the data."),
    run: RunChoice = options.group(options.RunChoice, without=("tensorboard",)),
    seeds: int = options.seeds,
    settings: dict[str, Any] = options.keywords(vectors=options.vectors, **options.caching),
    model: ModelChoice = options.model("batch_tokens", "start"),
    console: Console,
) -> None:
    """INPUT are labelled files (plain, gz, bz2, xz or zst)."""
    if no_elmo and model.model is not None:
        raise ConfigError("--no-elmo and --model exclude each other; leave one out")
    _check(task, columns, model.threads, curve=curve)
    from elmore.tasks.fitting import over_seeds
    from elmore.tasks.folder import task_class
    from elmore.tasks.recipe import TaskRecipe
    from elmore.training.display import Display
    from elmore.training.run import Run

    output = run.output
    _check_folder(output, several=seeds > 1)
    elmo = None if no_elmo else model.load(tokenizer)
    kind: Any = task_class(task)  # those of `_OWN` take columns, and have more methods
    chosen = TaskRecipe.load(run.recipe, task, kind.sizes, run.settings)
    # Read before the training: a missing file or an unknown label must not waste it.
    # With the model, whose tokenizer reads the text of some tasks.
    reader = kind(elmo, recipe=chosen, **columns)
    train_data, dev_data, test_data = (
        reader.examples(files) if files else None for files in (inputs, dev, test)
    )
    reader.labels = reader.find_labels(reader.for_training(train_data))
    reader.check_labels([*(dev_data or ()), *(test_data or ())])

    def once(number: int) -> Report:
        folder = output if seeds == 1 else output / f"seed-{number}"
        if run.force:
            Run(folder).clear()
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
                **columns,
            )
            report: Report = learner.fit(
                train_data, dev=dev_data, out=folder, resume=run.resume, progress=display.show
            )
            if curve:
                rows = learner.curve(train_data, dev=dev_data)
                tables = {**report.tables, "learning curve": rows}
                report = dataclasses.replace(report, tables=tables)
            return _tested(report, learner.evaluate(test_data), test) if test else report

    reports = {number: once(number) for number in range(run.seed, run.seed + seeds)}
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


def _tested(trained: Report, tested: Report, files: tuple[str, ...]) -> Report:
    """The report of a training with the scores on test data."""
    about = {**trained.measured_on, **tested.measured_on, "scored on": ", ".join(files)}
    about.pop("score")  # it says that the scores are on development data
    tables = {**trained.tables, **tested.tables}
    notes = [*trained.notes, *tested.notes]
    return dataclasses.replace(tested, measured_on=about, tables=tables, notes=notes)


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
    columns: dict[str, Any] = options.group(_columns),
    plot: Path | None = options.option(
        "tag, classify: draw the confusions: svg, png or pdf.", "PICTURE", type=options.PATH
    ),
    force: bool = options.force,
    caching: dict[str, Any] = options.keywords(**options.caching),
    model: ModelChoice = options.model(
        *("batch_tokens", "start"),
        help="The biLM, by default the one stored with the trained model.",
    ),
    console: Console,
) -> None:
    """MODEL is the folder of `elmore train`, or the name of an included model; INPUT are labelled
    files.
    """
    from elmore.tasks.folder import find_model, load, read_facts

    _check(read_facts(find_model(trained)).task, columns, model.threads, plot=plot)
    check_picture(plot, force=force)
    task: Any = load(
        trained,
        elmo=model.load_named(),
        device=model.device,
        threads=model.threads,
        **caching,
        **columns,
    )
    _show(task.evaluate(inputs), console)
    if plot is not None:
        from elmore.analysis.plots import plot_confusions

        examples = task.examples(inputs)
        pairs = task.pairs(examples, task.predict_examples(examples))
        plot_confusions(pairs, plot, overwrite=force)

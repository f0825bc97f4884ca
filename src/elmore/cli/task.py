"""`elmore task`: train, evaluate and use taggers, classifiers and the paper's six tasks."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.base.messages import shown
from elmore.base.optional import require_torch
from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import make_progress, say, write_json, write_result
from elmore.cli.training import add_recipe, ending_by_signal, overrides
from elmore.errors import ConfigError
from elmore.report import check_picture
from elmore.tasks.loading import TASKS
from elmore.text.reading import check_inputs, read_input

if TYPE_CHECKING:
    from elmore.report import Report

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore task train classify reviews.csv -o reviews/
  elmore task train tag train.conll --dev dev.conll -o tagger/
  elmore task train ner train.conll --dev dev.conll -o ner/
  elmore task evaluate ner test.conll --trained ner/
  echo "Ada lives in Rome ." | elmore task predict ner --trained ner/
"""

_TRAIN = """\
  elmore task train classify reviews.csv --text review --label stars -o reviews/
  elmore task train tag en_ewt-ud-train.conllu --label upos -o tagger/ --curve
  elmore task train ner train.conll --dev dev.conll --vectors glove.txt --model my-model -o ner/
  elmore task train ner train.conll --dev dev.conll --no-elmo --seeds 5 -o baseline/
  elmore task train ner train.conll --dev dev.conll -o ner/ --resume

You can stop a run with Ctrl-C and resume it later.
"""
_EVALUATE = """\
  elmore task evaluate ner test.conll --trained ner/
  elmore task evaluate ner test.conll --trained ner/ --json
"""
_PREDICT = """\
  echo "Ada lives in Rome ." | elmore task predict ner --trained ner/
  elmore task predict nli pairs.tsv --trained nli/ --json

input:
  tag, ner, srl, sentiment   one sentence per line
  classify              one text per line
  nli                   premise TAB hypothesis
  qa                    question TAB paragraph
  coref                 documents, separated by blank lines

tag and classify also read .csv, .tsv and .jsonl files, with one text per row.
"""
# Tasks on data of any form, whose columns have names.
_OWN = ("tag", "classify")
_TASKS = "\ntasks:\n" + "".join(f"  {name:<12}{what}\n" for name, (_, _, what) in TASKS.items())


def add_arguments(parser: Parser) -> None:
    """Declare the actions."""
    train = parser.add_action("train", "train a task on labelled files", _TRAIN + _TASKS)
    _add_task(train, "labelled files", "+")
    flags.add_model(train)
    flags.add(train, "--tokenizer")
    train.add_argument("--no-elmo", action="store_true", help="train the baseline without ELMo")
    train.add_argument(
        "--dev", action="append", metavar="FILE", help="development data, to choose the best epoch"
    )
    train.add_argument("--test", action="append", metavar="FILE", help="test data, scored last")
    _add_columns(train)
    train.add_argument(
        "--curve", action="store_true", help="tag, classify: also train on parts of the data"
    )
    flags.add(train, "--vectors")
    add_recipe(train, "laptop")
    flags.add(train, "--seeds")
    flags.add(train, "--resume")
    flags.add_output(train, "folder of the run", required=True)
    flags.add_seed(train)
    _add_shared(train)
    evaluate = parser.add_action(
        "evaluate", "score a trained task on labelled files", _EVALUATE + _TASKS
    )
    _add_task(evaluate, "labelled files", "+")
    _add_columns(evaluate)
    flags.add(evaluate, "--plot", help="tag, classify: draw the confusions: svg, png or pdf")
    flags.add(evaluate, "--force")
    _add_trained(evaluate)
    predict = parser.add_action("predict", "label plain text with a trained task", _PREDICT)
    _add_task(predict, "text files; - or none for stdin", "*")
    flags.add(predict, "--tokenizer")
    predict.add_argument("--text", metavar="COLUMN", help="tag, classify: of the texts of a table")
    _add_trained(predict)


def _add_task(parser: Parser, what: str, number: str) -> None:
    parser.add_argument("name", choices=tuple(TASKS), metavar="TASK", help=", ".join(TASKS))
    parser.add_argument(
        "inputs", nargs=number, metavar="INPUT", help=f"{what}; plain, gz, bz2, xz or zst"
    )


def _add_columns(parser: Parser) -> None:
    parser.add_argument("--text", metavar="COLUMN", help="tag, classify: of the texts or tokens")
    parser.add_argument(
        "--label",
        metavar="COLUMN",
        help="tag, classify: of the labels; a number from 1 in CoNLL columns; upos, xpos, feats or "
        "upos+xpos in CoNLL-U",
    )
    parser.add_argument(
        "--separator", metavar="TEXT", help="classify: between several labels of a text"
    )


def _add_trained(parser: Parser) -> None:
    parser.add_argument("--trained", metavar="FOLDER", required=True, help="the trained task")
    flags.add_model(parser, help="the biLM (default: the one stored with the trained task)")
    _add_shared(parser)


def _add_shared(parser: Parser) -> None:
    flags.add_cache(parser)
    flags.add_compute(parser, batches=False)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    model = flags.chosen_model(args)
    if args.name not in _OWN:
        for flag in ("text", "label", "separator", "curve", "plot"):
            if getattr(args, flag, None):
                raise ConfigError(f"--{flag} is for {', '.join(_OWN)}; leave it out")
    if args.action == "train":
        _train(args, model)
    else:
        if args.precision is not None and not args.model:
            raise ConfigError(
                f"--precision needs --model; {args.action} computes as in training without it"
            )
        _use(args, model)
    return 0


def _class(name: str) -> Any:
    module, class_name, _ = TASKS[name]
    return getattr(importlib.import_module(module), class_name)


def _train(args: argparse.Namespace, model: Any) -> None:
    if args.no_elmo and args.model:
        raise ConfigError("--no-elmo and --model exclude each other; leave one out")
    out = Path(args.output)
    _check_folder(out, several=args.seeds > 1)
    max_bytes = flags.cache_bytes(args)
    elmo = None if args.no_elmo else _elmo(args, model)
    from elmore.tasks.recipe import TaskRecipe
    from elmore.tasks.reports import over_seeds
    from elmore.training.display import Display

    _set_threads(args.threads)
    kind = _class(args.name)
    recipe = TaskRecipe.load(args.recipe, args.name, kind.sizes, overrides(args.set))
    # Read before the training: a missing file or an unknown label must not waste it.
    # With the model, whose tokenizer reads the text of some tasks.
    columns = _columns(args)
    reader = kind(elmo, recipe=recipe, **columns)
    train, dev, tests = (
        None if files is None else reader.examples(files)
        for files in (args.inputs, args.dev, args.test)
    )
    if args.name in _OWN:
        reader.labels = reader.find_labels(reader.for_training(train))
        reader.check_labels([*(dev or ()), *(tests or ())])

    def once(seed: int) -> Report:
        folder = out if args.seeds == 1 else out / f"seed-{seed}"
        if args.force and not args.resume:
            _remove(folder)
        prefix = f"seed {seed}: " if args.seeds > 1 else ""
        with (
            contextlib.closing(make_progress(unit="sentences", quiet=args.quiet)) as progress,
            Display(
                folder,
                metric=kind.metric,
                resume=args.resume,
                prefix=prefix,
                quiet=args.quiet,
            ) as display,
        ):
            task = kind(
                elmo,
                recipe=recipe,
                vectors=args.vectors,
                cache=args.cache,
                max_bytes=max_bytes,
                seed=seed,
                device=args.device,
                progress=progress,
                **columns,
            )
            report: Report = task.fit(
                train,
                dev=dev,
                out=folder,
                resume=args.resume,
                progress=display.show,
            )
            if args.curve:
                rows = task.curve(train, dev=dev)
                report = dataclasses.replace(
                    report, tables={**report.tables, "learning curve": rows}
                )
            return _tested(report, task.evaluate(tests), args.test) if args.test else report

    seeds = range(args.seed, args.seed + args.seeds)
    with ending_by_signal():
        report = over_seeds(seeds, once) if args.seeds > 1 else once(args.seed)
    report.save(out / "results.json", overwrite=True)
    _show(args, report)
    if not args.quiet:
        where = out if args.seeds == 1 else f"{out / f'seed-{args.seed}'} and its neighbours"
        say(f"the model is in {where}")


def _columns(args: argparse.Namespace) -> dict[str, str | None]:
    names = ("text", "label", "separator")
    return {name: getattr(args, name, None) for name in names} if args.name in _OWN else {}


def _check_folder(out: Path, *, several: bool) -> None:
    """Keep runs with one and with several seeds apart: both write results.json."""
    from elmore.training.run import Run

    if several and Run(out).exists():
        raise ConfigError(f"'{out}' has a run with one seed; use another folder")
    if not several and any(Run(folder).exists() for folder in out.glob("seed-*")):
        raise ConfigError(f"'{out}' has runs with several seeds; use another folder")


def _remove(folder: Path) -> None:
    """Delete a run, but never another folder."""
    from elmore.training.run import Run

    run = Run(folder)
    if run.exists():
        with run.locked():
            shutil.rmtree(folder)


def _tested(trained: Report, tested: Report, files: list[str]) -> Report:
    """The report of a training with the scores on test data."""
    about = {**trained.measured_on, **tested.measured_on, "scored on": ", ".join(files)}
    about.pop("score")  # it says that the scores are on development data
    tables = {**trained.tables, **tested.tables}
    notes = [*trained.notes, *tested.notes]
    return dataclasses.replace(tested, measured_on=about, tables=tables, notes=notes)


def _elmo(args: argparse.Namespace, model: Any) -> Any:
    checkpoint = flags.read_model(model)
    from elmore.elmo import Elmo

    _set_threads(args.threads)
    return Elmo(
        checkpoint,
        device=args.device,
        precision=args.precision,
        threads=args.threads,
        tokenizer=getattr(args, "tokenizer", None),
    )


def _use(args: argparse.Namespace, model: Any) -> None:
    if args.action == "predict":
        check_inputs(args.inputs, None)
    _set_threads(args.threads)
    task = _class(args.name).load(
        args.trained,
        elmo=_elmo(args, model) if args.model else None,
        cache=args.cache,
        max_bytes=flags.cache_bytes(args),
        device=args.device,
        threads=args.threads,
        **_columns(args),
    )
    if args.action == "evaluate":
        if args.plot:
            check_picture(Path(args.plot))
        _show(args, task.evaluate(args.inputs))
        if args.plot:
            from elmore.analysis.plots import plot_confusions

            examples = task.examples(args.inputs)
            pairs = task.pairs(examples, task.predict_examples(examples))
            plot_confusions(pairs, Path(args.plot), overwrite=args.force)
        return
    task.tokenizer = args.tokenizer
    colour = sys.stdout is not None and sys.stdout.isatty()
    for name in args.inputs or ["-"]:
        examples = [task.parse(item) for item in _items(args, task, name)]
        for example, found in zip(examples, task.predict_examples(examples), strict=True):
            if args.json:
                write_result(json.dumps(task.to_json(example, found), ensure_ascii=False))
            else:
                write_result(task.show(example, found, colour=colour))


def _items(args: argparse.Namespace, task: Any, name: str) -> Iterator[Any]:
    """What to predict on in a file."""
    from elmore.tasks.data.labelled import is_table, read_texts

    if args.name in _OWN and is_table(name):
        return (row.text for row in read_texts(name, task.columns, labelled=False))
    if args.text is not None:
        raise ConfigError(f"--text is for .csv, .tsv and .jsonl files, not '{shown(name, 60)}'")
    items: Iterator[Any] = task.items(read_input(name), name)
    return items


def _show(args: argparse.Namespace, report: Report) -> None:
    if args.json:
        write_json(report.to_dict())
        return
    scores = "  ".join(f"{name} {value:.2f}" for name, value in report.metrics.items())
    # A report without tables shows the scores itself.
    write_result(f"{report}\n\n{scores}" if scores and report.tables else str(report))


def _set_threads(threads: int | None) -> None:
    """Set the threads of torch. It is a global setting, so only a program may change it."""
    if threads is not None:
        require_torch("a task").set_num_threads(threads)

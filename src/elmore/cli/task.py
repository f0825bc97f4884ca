"""`elmore task`: train, evaluate and use the six downstream models."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore._imports import require_torch
from elmore.cli import flags
from elmore.cli.report import make_progress, say, write_json, write_result
from elmore.cli.training import Display, add_recipe, ending_by_signal, overrides
from elmore.errors import ConfigError
from elmore.tasks.task import TASKS
from elmore.text.reading import check_inputs, read_input

if TYPE_CHECKING:
    from elmore.report import Report

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore task train ner train.conll --dev dev.conll --vectors glove.txt --model my-model -o ner/
  elmore task train ner train.conll --dev dev.conll --no-elmo --seeds 5 -o baseline/
  elmore task evaluate ner test.conll --trained ner/ --json
  echo "Ada lives in Rome ." | elmore task predict ner --trained ner/

train      learn from labelled files; the run in -o can be stopped (Ctrl-C) and gone on with
evaluate   score a trained model on labelled files
predict    label plain text: a sentence a line (ner, srl, sentiment); premise TAB hypothesis
           (nli); question TAB paragraph (qa); documents with blank lines between (coref)
"""

_TRAIN_ONLY = {
    "dev": "--dev",
    "test": "--test",
    "output": "-o",
    "no_elmo": "--no-elmo",
    "vectors": "--vectors",
    "resume": "--resume",
    "set": "--set",
}
# The same with what they are when left out.
_DEFAULTS: dict[str, Any] = {"recipe": "laptop", "seeds": 1, "seed": 0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("action", choices=("train", "evaluate", "predict"), metavar="ACTION")
    parser.add_argument("name", choices=tuple(TASKS), metavar="TASK", help=", ".join(TASKS))
    parser.add_argument(
        "inputs", nargs="*", metavar="INPUT", help="data files; plain, gz, bz2, xz or zst"
    )
    flags.add_model(parser)
    parser.add_argument("--no-elmo", action="store_true", help="train the baseline without ELMo")
    parser.add_argument("--dev", action="append", metavar="FILE", help="to choose the best epoch")
    parser.add_argument("--test", action="append", metavar="FILE", help="to score at the end")
    parser.add_argument("--vectors", metavar="FILE", help="word vectors: GloVe or word2vec")
    parser.add_argument("--trained", metavar="FOLDER", help="a trained task, for evaluate, predict")
    add_recipe(parser, _DEFAULTS["recipe"])
    parser.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="train with N seeds: mean and sd"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run in -o")
    flags.add_cache(parser)
    flags.add_output(parser, "train: folder of the run")
    flags.add_seed(parser)
    flags.add_compute(parser, batches=False)
    flags.add_json(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    model, rest = flags.split_model(args.model)
    args.inputs = [*rest, *args.inputs]
    if args.action == "train":
        _train(args, model)
        return 0
    for name, flag in _TRAIN_ONLY.items():
        if getattr(args, name):
            raise ConfigError(f"{flag} is for train; leave it out for {args.action}")
    for name, default in _DEFAULTS.items():
        if getattr(args, name) != default:
            raise ConfigError(f"--{name} is for train; leave it out for {args.action}")
    if args.precision is not None and not args.model:
        raise ConfigError(
            f"--precision is for train and for --model; {args.action} computes as in training"
        )
    if args.trained is None:
        raise ConfigError(f"{args.action} needs a trained model; pass --trained FOLDER")
    if args.action == "evaluate" and not args.inputs:
        raise ConfigError("evaluate needs labelled files; name one or more")
    _use(args, model)
    return 0


def _class(name: str) -> Any:
    module, class_name, _ = TASKS[name]
    return getattr(importlib.import_module(module), class_name)


def _train(args: argparse.Namespace, model: Any) -> None:
    if not args.inputs:
        raise ConfigError("train needs labelled files; name one or more")
    if args.output is None:
        raise ConfigError("train needs a folder for the run; pass -o FOLDER")
    if args.trained is not None:
        raise ConfigError("--trained is for evaluate and predict; leave it out for train")
    if args.seeds < 1:
        raise ConfigError(f"--seeds {args.seeds}; use 1 or more")
    if args.no_elmo and args.model:
        raise ConfigError("--no-elmo and --model do not go together; leave one out")
    out = Path(args.output)
    _check_folder(out, several=args.seeds > 1)
    max_bytes = flags.cache_bytes(args)
    elmo = None if args.no_elmo else _elmo(args, model)
    from elmore.tasks.recipe import TaskRecipe
    from elmore.tasks.seeds import over_seeds

    _set_threads(args.threads)
    kind = _class(args.name)
    recipe = TaskRecipe.load(args.recipe, args.name, kind.sizes, overrides(args.set))
    # Read before the training, which would be in vain if the file were not there.
    tests = kind(None, recipe=recipe).examples(args.test) if args.test else []

    def once(seed: int) -> Report:
        folder = out if args.seeds == 1 else out / f"seed-{seed}"
        if args.force and not args.resume:
            _remove(folder)
        prefix = f"seed {seed}: " if args.seeds > 1 else ""
        with (
            contextlib.closing(make_progress(unit="sentences", quiet=args.quiet)) as progress,
            Display(args, folder, metric=kind.metric, prefix=prefix) as display,
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
            )
            report: Report = task.fit(
                args.inputs,
                dev=args.dev,
                out=folder,
                resume=args.resume,
                report=display.show,
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


def _check_folder(out: Path, *, several: bool) -> None:
    """Keep a training and trainings with several seeds apart: their results are one file."""
    from elmore.training.run import Run

    if several and Run(out).exists():
        raise ConfigError(f"'{out}' holds a training with one seed; use another folder")
    if not several and any(Run(folder).exists() for folder in out.glob("seed-*")):
        raise ConfigError(f"'{out}' holds trainings with several seeds; use another folder")


def _remove(folder: Path) -> None:
    """Remove a run, and nothing else."""
    from elmore.training.run import Run

    run = Run(folder)
    if run.exists():
        with run.locked():
            shutil.rmtree(folder)


def _tested(trained: Report, tested: Report, files: list[str]) -> Report:
    """Put the scores of the test into the report of a training."""
    about = {**trained.measured_on, **tested.measured_on, "scored on": ", ".join(files)}
    about.pop("score")  # which was that on development data
    tables = {**trained.tables, **tested.tables}
    notes = [*trained.notes, *tested.notes]
    return dataclasses.replace(tested, measured_on=about, tables=tables, notes=notes)


def _elmo(args: argparse.Namespace, model: Any) -> Any:
    checkpoint = flags.read_model(model)
    from elmore.embedding.elmo import Elmo

    _set_threads(args.threads)
    return Elmo(checkpoint, device=args.device, precision=args.precision, threads=args.threads)


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
    )
    if args.action == "evaluate":
        _show(args, task.evaluate(args.inputs))
        return
    colour = sys.stdout is not None and sys.stdout.isatty()
    for name in args.inputs or ["-"]:
        examples = [task.parse(item) for item in task.items(read_input(name), name)]
        for example, found in zip(examples, task.predict_examples(examples), strict=True):
            if args.json:
                write_result(json.dumps(task.to_json(example, found), ensure_ascii=False))
            else:
                write_result(task.show(example, found, colour=colour))


def _show(args: argparse.Namespace, report: Report) -> None:
    if args.json:
        write_json(report.to_dict())
        return
    scores = "  ".join(f"{name} {value:.2f}" for name, value in report.metrics.items())
    # Without tables the report has shown them.
    write_result(f"{report}\n\n{scores}" if scores and report.tables else str(report))


def _set_threads(threads: int | None) -> None:
    """Tell torch, whose count is the process's own, so that only a program may set it."""
    if threads is not None:
        require_torch("a task").set_num_threads(threads)

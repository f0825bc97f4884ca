"""`elmore prepare`, `pretrain` and `fine-tune`: from text to a biLM, or what that would cost."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from elmore.cli import options
from elmore.cli.console import Console, check_new, described, fitted, write_result
from elmore.errors import ConfigError, ElmoreError

if TYPE_CHECKING:
    from elmore.corpus.prepared import Prepared
    from elmore.training.bilm.recipe import Recipe
    from elmore.training.run import Run

_PREPARE = """\
  elmore prepare corpus/*.txt.gz -o data/
  elmore prepare books/*.txt --split-sentences --vocabulary 100000 -o data/
  elmore prepare train/* --tokenized --heldout-files 'heldout/*' --vocabulary vocab.txt -o data/
  elmore prepare corpus/*.txt.gz --vocabulary 50000 -o vocab.txt

Blank lines separate documents. If -o ends in .txt, only a vocabulary is written. An interrupted run
resumes when it is started again. `elmore info data/` shows what vocabularies of other sizes cover.
"""


@options.verb(_PREPARE)
def prepare(
    *,
    inputs: tuple[str, ...] = options.argument(
        "INPUT...", nargs=-1, required=True, type=click.Path()
    ),
    settings: dict[str, Any] = options.keywords(
        tokenized=options.tokenized,
        split_sentences=options.split_sentences,
        errors=options.errors,
        tokenizer=options.tokenizer("ptb"),
        workers=options.count(None, "Processes, by default one per CPU.", type=options.CPUS),
        vocabulary=options.option(
            "Number of words, with <S> </S> <UNK>, or a vocabulary file; by default 50000 words, "
            "without those that occur once.",
            "N|FILE",
            type=options.number_or_name,
        ),
        min_count=options.count(None, "Leave out words that occur less often.", type=int),
        heldout=options.heldout(0.005),
        heldout_files=options.repeated("Hold out this file or pattern instead"),
        seed=options.seed,
        shard_tokens=options.count(1_000_000, "Approximate tokens per shard."),
    ),
    output: Path = options.output(
        "Folder to create, or NAME.txt for a vocabulary alone.", required=True
    ),
    force: bool = options.force,
    console: Console,
) -> None:
    """INPUT are UTF-8 text files or patterns (plain, gz, bz2, xz or zst)."""
    from elmore.corpus.prepare import prepare as prepare_corpus

    folder = output
    if words_only := output.suffix == ".txt":
        if isinstance(settings["vocabulary"], str):
            raise ConfigError("--vocabulary FILE is a vocabulary already; pass a number of words")
        check_new(output, force=force)
        settings |= {"heldout": 0, "heldout_files": ()}
        # Under a name of its own, so that an interrupted run can resume.
        folder = output.with_name(f"{output.name}.corpus")
    start = time.perf_counter()
    prepared = prepare_corpus(inputs, folder, overwrite=force or words_only, **settings)
    if words_only:
        _keep_vocabulary(prepared, output, force, console)
        return
    seconds = time.perf_counter() - start
    speed = (prepared.training.tokens + prepared.heldout.tokens) / max(seconds, 0.01)
    facts = describe_prepared(prepared)
    console.done(
        {**facts, "seconds": round(seconds, 2)},
        f"{described(facts)}\nwrote '{prepared.folder}', {speed:,.0f} tokens per second",
    )


def describe_prepared(prepared: Prepared) -> dict[str, Any]:
    """What `elmore prepare` reports, and `elmore info` later."""
    return {
        "prepared": str(prepared.folder),
        "training": dataclasses.asdict(prepared.training),
        "heldout": dataclasses.asdict(prepared.heldout),
        "shards": len(prepared.shards),
        "vocabulary": len(prepared.vocabulary),
        "oov_rate": prepared.oov_rate,
        "heldout_oov_rate": prepared.heldout_oov_rate,
        "tokenizer": prepared.tokenizer,
        "notes": list(prepared.notes),
        "digest": prepared.digest,
    }


def _keep_vocabulary(prepared: Prepared, output: Path, force: bool, console: Console) -> None:
    """Write the vocabulary of prepared text, and remove the rest."""
    from elmore.base.atomic import atomic_file
    from elmore.corpus.prepared import COUNTS
    from elmore.corpus.words import read_counts

    facts = {
        "output": str(output),
        "words": len(prepared.vocabulary),
        "types": sum(1 for _ in read_counts(prepared.folder / COUNTS)),
        "tokens": prepared.n_tokens,
        "oov_rate": prepared.oov_rate,
        "notes": list(prepared.notes[:-1]),  # the last: nothing is held out
    }
    with atomic_file(output, overwrite=force) as stream:
        stream.write(prepared.vocabulary.to_bytes())
    shutil.rmtree(prepared.folder)
    console.done(facts, described(facts))


_PRETRAIN = """\
  elmore pretrain data/ --plan
  elmore pretrain data/ -o runs/a
  elmore pretrain data/ -o runs/a --resume
  elmore pretrain data/ -o runs/a --resume --finish 5000000
  elmore pretrain --show-recipe laptop > my.toml
  torchrun --nproc-per-node 4 -m elmore pretrain data/ -o runs/a --recipe official-small

Ctrl-C saves the run and stops it; --resume continues. Where matplotlib is installed, a finished run
has its curves in curve.svg. --plan trains a few steps and forgets them; the expected perplexity
comes from earlier runs on English.
"""
_FINE_TUNE = """\
  elmore fine-tune reviews.txt -o runs/a
  elmore fine-tune reviews.txt --model runs/a/best -o runs/b
  elmore fine-tune reviews/*.txt.gz --model options.json,weights.hdf5 -o runs/b --epochs 3
  elmore convert runs/b/best -o reviews-elmo --to allennlp

A model without a softmax (published HDF5) gets a new one, which is trained alone at first. Ctrl-C
saves the run and stops it; --resume continues.
"""


@options.verb(_PRETRAIN)
def pretrain(
    *,
    data: Path | None = options.argument(type=options.PATH, required=False),
    run: options.RunChoice = options.group(
        options.RunChoice,
        output=options.output("Folder of the run."),
        recipe=options.recipe(None, ", by default laptop, fitted to the size of the data"),
    ),
    device: str = options.device,
    threads: int | None = options.threads,
    finish: int | None = options.option(
        "With --resume: decay the learning rate over this many more tokens, then stop.",
        "TOKENS",
        type=int,
    ),
    processes: int = options.count(1, "Processes on this machine.", type=options.CPUS),
    plan: bool = options.flag("Only say what the run will cost and bring."),
    recipes: bool = options.flag("List the recipes, those of tasks too."),
    show_recipe: str | None = options.option("Print a recipe.", "NAME"),
    console: Console,
) -> None:
    """DATA is a folder made by `elmore prepare`."""
    if recipes or show_recipe is not None:
        _print_recipes(show_recipe, console)
        return
    if data is None:
        raise ConfigError("name the DATA to train on; `elmore prepare` makes it")
    if run.output is None and not plan:
        raise ConfigError("pass -o FOLDER for the run, or --plan to see what it will cost")
    # torchrun sets RANK in each process it starts, so this happens only once.
    if processes > 1 and not plan and "RANK" not in os.environ:
        _spread(processes)
    from elmore.corpus.prepared import Prepared
    from elmore.training.bilm.plan import make_plan
    from elmore.training.bilm.pretrain import finish_recipe
    from elmore.training.bilm.pretrain import pretrain as train
    from elmore.training.display import Display

    prepared = Prepared.open(data)
    recipe = _recipe(prepared, run, Console(quiet=True) if plan else console)
    if plan:
        found = make_plan(prepared, recipe=recipe, threads=threads, device=device)
        console.result(dataclasses.asdict(found), str(found))
        return
    if finish is not None:
        recipe = finish_recipe(recipe, run.output, finish)
    display = Display(run.output, quiet=console.quiet, tensorboard=run.tensorboard)
    with display:
        done = train(
            prepared,
            run.output,
            recipe=recipe,
            seed=run.seed,
            resume=run.resume,
            overwrite=run.force,
            threads=threads,
            device=device,
            progress=display.show,
        )
    if _is_first():
        _report(done, display.last_heldout or {}, "trained", done.checkpoint_path, console)


def _is_first() -> bool:
    """Whether this is the process that reports, of several."""
    return os.environ.get("RANK", "0") == "0"


def _recipe(prepared: Prepared, run: options.RunChoice, console: Console) -> Recipe:
    """The recipe that is named, or one that fits the data; say what was chosen."""
    from elmore.training.bilm.recipe import DEFAULT, Recipe, fitted_recipe
    from elmore.training.run import Run

    if run.recipe is not None:
        return Recipe.load(run.recipe, run.settings)
    if run.resume and Run(run.output).exists():
        return Run(run.output).recipe.changed(run.settings)
    chosen = fitted_recipe(prepared, run.settings)
    own = Recipe.load(DEFAULT, run.settings)
    differ = {
        f"{section}.{key}": value
        for section in ("schedule", "run")
        for key, value in vars(getattr(chosen, section)).items()
        if value != getattr(getattr(own, section), key)
    }
    if differ and _is_first():
        values = ", ".join(f"{key}={value:_g}" for key, value in differ.items())
        console.say(f"recipe {DEFAULT}, fitted to {prepared.n_tokens:,} training tokens: {values}")
    return chosen


def _spread(processes: int) -> NoReturn:
    """Start the same command in several processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(processes), "-m", "elmore", *sys.argv[1:]]
    if sys.platform == "win32":  # exec returns to the shell there, which then waits for nobody
        raise SystemExit(subprocess.call(command))  # noqa: S603 - our own interpreter and arguments
    os.execv(sys.executable, command)  # noqa: S606 - our own interpreter and arguments


def _print_recipes(name: str | None, console: Console) -> None:
    """List the recipes with their first line, or print one."""
    from elmore.report import aligned
    from elmore.training.bilm import recipe as files

    if name is not None:
        write_result(files.recipe_text(name).rstrip("\n"))
        return
    names = [*files.recipe_names(), *files.recipe_names(files.TASK_RECIPES)]
    first = {name: files.recipe_text(name).split("\n", 1)[0] for name in names}
    summaries = {name: line.removeprefix("# ") for name, line in first.items()}
    console.result(summaries, fitted(aligned(list(summaries.items()))))


@options.verb(_FINE_TUNE)
def fine_tune(
    *,
    inputs: tuple[str, ...] = options.argument("INPUT...", nargs=-1),
    run: options.RunChoice = options.group(options.RunChoice, recipe=options.recipe("fine-tune")),
    epochs: float | None = options.option("Passes over the text.", "N", type=float),
    heldout: float = options.heldout(0.05),
    tokenized: bool = options.tokenized,
    tokenizer: str | None = options.tokenizer(),
    model: options.ModelChoice = options.model("precision", "batch_tokens", "start"),
    console: Console,
) -> None:
    """INPUT are text files or patterns."""
    # A run that is resumed remembers its text.
    if not inputs and not run.resume:
        raise ConfigError("name the text to adapt the model to; see `elmore fine-tune --help`")
    from elmore.training.bilm.fine_tune import fine_tune as adapt
    from elmore.training.bilm.recipe import Recipe
    from elmore.training.display import Display

    display = Display(run.output, quiet=console.quiet, tensorboard=run.tensorboard)
    with display:
        done = adapt(
            model.path,
            inputs,
            run.output,
            recipe=Recipe.load(run.recipe, run.settings),
            epochs=epochs,
            heldout=heldout,
            tokenized=tokenized,
            tokenizer=tokenizer,
            seed=run.seed,
            resume=run.resume,
            overwrite=run.force,
            threads=model.threads,
            device=model.device,
            progress=display.show,
        )
    evaluations = [line["heldout"] for line in done.log() if "heldout" in line]
    best: dict[str, float] = min(evaluations, key=lambda found: found["loss"], default={})
    where = done.best_path if done.best_path.is_dir() else done.checkpoint_path
    perplexities = [found["perplexity"] for found in evaluations]
    _report(done, best, "fine-tuned", where, console, heldout_perplexities=perplexities)


# --------------------------------------------------------------------------- all training verbs


def _report(
    run: Run, heldout: dict[str, float], verb: str, model: Path, console: Console, **facts: Any
) -> None:
    """Say how a run ended, and draw its curves into its folder where that is possible."""
    from elmore.training.bilm.curves import plot_run
    from elmore.training.display import heldout_headline

    with contextlib.suppress(ElmoreError):  # there is no matplotlib, or the run is too short
        plot_run(run, run.path / "curve.svg", overwrite=True)
    quality = f", held-out perplexity {heldout_headline(heldout)}" if heldout else ""
    console.done(
        {"run": str(run.path), "heldout": heldout, **facts},
        f"{verb} {run.path}{quality}; the model is in {model}",
    )
    console.warn_if_misleading(heldout.get("oov_rate", 0.0))

"""`elmore pretrain`: train a biLM, or say what that would cost."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from elmore.base.messages import say
from elmore.cli import options
from elmore.cli.console import Console, common, fitted, write_json, write_result
from elmore.errors import ConfigError, ElmoreError

if TYPE_CHECKING:
    from elmore.training.bilm.recipe import Recipe
    from elmore.training.display import Display
    from elmore.training.run import Run

__all__ = ["draw_curve", "ending_by_signal", "pretrain"]

_EXAMPLES = """\
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


@click.command(epilog=options.examples(_EXAMPLES))
@click.argument("data", type=options.PATH, required=False)
@options.force_output("Folder of the run.")
@options.recipe(None, ", by default laptop, fitted to the size of the data")
@options.resume
@options.seed
@click.option("--tensorboard", is_flag=True, help="Write event files too.")
@options.device
@options.threads
@click.option(
    "--finish",
    type=int,
    metavar="TOKENS",
    help="With --resume: decay the learning rate over this many more tokens, then stop.",
)
@click.option(
    "--processes", type=options.CPUS, default=1, metavar="N", help="Processes on this machine."
)
@click.option("--plan", is_flag=True, help="Only say what the run will cost and bring.")
@click.option("--recipes", is_flag=True, help="List the recipes, those of tasks too.")
@click.option("--show-recipe", metavar="NAME", help="Print a recipe.")
@common()
def pretrain(
    *,
    data: Path | None,
    output: Path | None,
    force: bool,
    recipe: str | None,
    settings: tuple[str, ...],
    resume: bool,
    seed: int,
    tensorboard: bool,
    device: str,
    threads: int | None,
    finish: int | None,
    processes: int,
    plan: bool,
    recipes: bool,
    show_recipe: str | None,
    console: Console,
) -> None:
    """Train a biLM on DATA, a folder made by `elmore prepare`."""
    if recipes or show_recipe is not None:
        _print_recipes(show_recipe, console)
        return
    if data is None:
        raise ConfigError("name the DATA to train on; `elmore prepare` makes it")
    changed = options.overrides(settings)
    if plan:
        _print_plan(data, recipe, changed, threads, device, console)
        return
    if output is None:
        raise ConfigError("pass -o FOLDER for the run, or --plan to see what it will cost")
    if resume and force:
        raise ConfigError("--resume and --force exclude each other; leave one out")
    # torchrun sets RANK in each process it starts, so this happens only once.
    if processes > 1 and "RANK" not in os.environ:
        _spread(processes)
    from elmore.training.bilm.pretrain import finish_recipe
    from elmore.training.bilm.pretrain import pretrain as train
    from elmore.training.display import Display, heldout_headline

    chosen = _recipe(data, output, recipe, changed, resume, console)
    if finish is not None:
        chosen = finish_recipe(chosen, output, finish)
    display = Display(output, quiet=console.quiet, tensorboard=tensorboard)
    with ending_by_signal(), display:
        done = train(
            data,
            output,
            recipe=chosen,
            seed=seed,
            resume=resume,
            overwrite=force,
            threads=threads,
            device=device,
            progress=display.show
            if console.quiet or resume
            else _announcing(data, chosen, display, console),
        )
    # Of several processes only the first reports.
    if os.environ.get("RANK", "0") != "0":
        return
    last = display.last_heldout or {}
    draw_curve(done)
    if console.json:
        write_json({"run": str(done.path), "heldout": last})
    else:
        found = f", held-out perplexity {heldout_headline(last)}" if last else ""
        console.say(f"trained {done.path}{found}; the model is in {done.path}/checkpoint")
    console.warn_if_misleading(last.get("oov_rate", 0.0))


def _recipe(
    data: Path,
    output: Path,
    recipe: str | None,
    changed: dict[str, str],
    resume: bool,
    console: Console,
) -> Recipe:
    """The recipe that is named, or one that fits the data; say what was chosen."""
    from elmore.corpus.prepared import Prepared
    from elmore.training.bilm.fitted_recipe import DEFAULT, choose_recipe, fitted_keys
    from elmore.training.bilm.recipe import Recipe
    from elmore.training.run import Run

    if recipe is not None:
        return Recipe.load(recipe, changed)
    prepared = Prepared.open(data)
    chosen = choose_recipe(prepared, Run(output) if resume else None, changed)
    own = fitted_keys(Recipe.load(DEFAULT, changed))
    differ = {key: value for key, value in fitted_keys(chosen).items() if value != own[key]}
    if differ and not resume and os.environ.get("RANK", "0") == "0":
        values = ", ".join(f"{key}={value:_g}" for key, value in differ.items())
        console.say(f"recipe {DEFAULT}, fitted to {prepared.n_tokens:,} training tokens: {values}")
    return chosen


def _announcing(
    data: Path, recipe: Recipe, display: Display, console: Console
) -> Callable[[dict[str, Any]], None]:
    """Show the log, after a plan that is made from the speed of the run's own first steps."""
    from elmore.base.machine import peak_memory
    from elmore.corpus.prepared import Prepared
    from elmore.training.bilm.plan import Measured, Plan

    planned = False

    def show(line: dict[str, Any]) -> None:
        nonlocal planned
        if not planned and "tokens_per_s" in line:
            measured = Measured(tokens_per_second=line["tokens_per_s"], memory_bytes=peak_memory())
            console.say(Plan.of(Prepared.open(data), recipe, measured).line())
            planned = True
        display.show(line)

    return show


def _spread(processes: int) -> NoReturn:
    """Start the same command in several processes."""
    rest = list(sys.argv[1:])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(processes), "-m", "elmore", *rest]
    if sys.platform == "win32":  # exec returns to the shell there, which then waits for nobody
        raise SystemExit(subprocess.call(command))  # noqa: S603 - our own interpreter and arguments
    os.execv(sys.executable, command)  # noqa: S606 - our own interpreter and arguments


def _print_plan(
    data: Path,
    recipe: str | None,
    changed: dict[str, str],
    threads: int | None,
    device: str,
    console: Console,
) -> None:
    from elmore.corpus.prepared import Prepared
    from elmore.training.bilm.fitted_recipe import choose_recipe
    from elmore.training.bilm.plan import make_plan
    from elmore.training.bilm.recipe import Recipe

    prepared = Prepared.open(data)
    chosen = (
        choose_recipe(prepared, settings=changed)
        if recipe is None
        else Recipe.load(recipe, changed)
    )
    plan = make_plan(prepared, recipe=chosen, threads=threads, device=device)
    if console.json:
        write_json(plan.to_dict())
    else:
        write_result(str(plan))


def _print_recipes(name: str | None, console: Console) -> None:
    """List the recipes with their first line, or print one."""
    from elmore.report import aligned
    from elmore.training.bilm.recipe_files import (
        recipe_names,
        recipe_text,
        task_recipe_names,
        task_recipe_text,
    )

    # Recipes of tasks are called TASK-NAME, so the names do not collide.
    texts: dict[str, Callable[[], str]] = {
        **{name: partial(recipe_text, name) for name in recipe_names()},
        **{name: partial(task_recipe_text, name) for name in task_recipe_names()},
    }
    if name is not None:
        # A name that is not in the table gets its error from `recipe_text`, with a guess.
        write_result(texts.get(name, partial(recipe_text, name))().rstrip("\n"))
        return
    summaries = {name: text().split("\n", 1)[0].removeprefix("# ") for name, text in texts.items()}
    if console.json:
        write_json(summaries)
    else:
        write_result(fitted(aligned(list(summaries.items()))))


# --------------------------------------------------------------------------- all training verbs


@contextlib.contextmanager
def ending_by_signal() -> Iterator[None]:
    """Let a run that a signal stopped, and that saved everything, end as the signal would."""
    from elmore.training.loop import Stopped

    try:
        yield
    except Stopped as stopped:
        say(f"elmore: {stopped} with --resume")
        if stopped.number == signal.SIGINT:
            raise KeyboardInterrupt from None
        signal.raise_signal(stopped.number)
        raise SystemExit(128 + stopped.number) from None


def draw_curve(run: Run) -> None:
    """Draw the curves of a run into its folder, where matplotlib is installed."""
    if find_spec("matplotlib") is None:
        return
    from elmore.training.bilm.curves import plot_run

    with contextlib.suppress(ElmoreError):  # too short a run has no curve
        plot_run(run, run.path / "curve.svg", overwrite=True)

"""From prepared text to a trained biLM."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from elmore.corpus.prepared import Prepared
from elmore.embedding.load import ModelPath, read_checkpoint
from elmore.errors import ConfigError, Stopped
from elmore.formats.checkpoint import Checkpoint
from elmore.nn.threads import TorchWorkers, one_thread
from elmore.training.bilm.plan import Plan
from elmore.training.bilm.recipe import Recipe, fitted_recipe
from elmore.training.bilm.trainer import LmTrainer
from elmore.training.display import TrainingProgress, reporting
from elmore.training.distributed import Group, join_group
from elmore.training.loop import train
from elmore.training.run import Run, load_state


def pretrain(
    data: Prepared | str | Path,
    out: str | Path,
    *,
    recipe: Recipe | str | Path | None = None,
    start: Checkpoint | ModelPath | None = None,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    threads: int | None = None,
    device: str = "cpu",
    progress: TrainingProgress = None,
) -> Run:
    """Train a biLM.

    Args:
        data: prepared text, or its folder.
        out: the folder of the run.
        recipe: a recipe, the name of a shipped one, or the path of a TOML file. By default
            `laptop`, whose passes, warm-up and evaluations are fitted to the size of the data; a
            run that is resumed keeps its own.
        start: a model with the recipe's shape and the data's vocabulary, whose weights to start
            from; by default from random ones.
        seed: the one seed.
        resume: continue the run in `out`; without a run there, start one.
        overwrite: replace the run in `out`; a folder that holds anything else is refused.
        threads: processors to use; all by default.
        device: where to compute: "cpu", "cuda" or "cuda:1"; with several processes "cuda" is the
            GPU of each.
        progress: whether to show the live report of the command line: a bar in a terminal or
            notebook, elsewhere lines on stderr. Or a function that gets every line of the log
            instead, as it is written.

    Returns:
        the run; `run.elmo()` is the trained model.
    """
    prepared = data if isinstance(data, Prepared) else Prepared.open(data)
    run = Run(out)
    if recipe is None:
        recipe = run.recipe if resume and run.exists() else fitted_recipe(prepared)
    elif not isinstance(recipe, Recipe):
        recipe = Recipe.load(recipe)
    if start is not None and not isinstance(start, Checkpoint):
        start = read_checkpoint(start)
    if start is not None and start.vocabulary != prepared.vocabulary:
        raise ConfigError(
            f"'{prepared.folder}' has another vocabulary than the model to start from; prepare it "
            "with --vocabulary and the model's vocab.txt"
        )
    group = start_run(run, device, resume=resume, overwrite=overwrite)
    train_run(
        run,
        prepared,
        recipe,
        group,
        plan=lambda trainer, speed: Plan.of(trainer, speed).line(),
        seed=seed,
        threads=threads,
        progress=progress,
        start=start,
    )
    return run


def start_run(run: Run, device: str, *, resume: bool, overwrite: bool) -> Group:
    """Join the other processes, and check or clear the folder of a run with them."""
    group = join_group(device)
    run.check_new(resume=resume, overwrite=overwrite)
    group.barrier()  # nobody may write before all have seen that there is no run
    if overwrite:
        group.first(run.clear)
    return group


def train_run(
    run: Run,
    prepared: Prepared,
    recipe: Recipe,
    group: Group,
    *,
    plan: Callable[[LmTrainer, float], str],
    seed: int,
    threads: int | None,
    progress: TrainingProgress,
    start: Checkpoint | None,
    announced: str | None = None,
) -> None:
    """Start or resume a run.

    `start` are weights to start from. `plan` says in words what a new run will do, from its trainer
    and the tokens per second of its first steps; `announced` is reported before the first.
    """
    trainer = LmTrainer(recipe, run, prepared, seed, group, TorchWorkers(threads), start)
    facts = {"seed": seed, "data": prepared.digest, "processes": group.world}
    with run.locked() if group.main else nullcontext():
        planned = run.exists()
        if planned:
            run.check(recipe, facts, write=group.main)
            if trainer.load_state(group.device) and group.main:
                run.forget_after(trainer.step_number)
            # Killed before its first save: the run starts again, and so does its log.
            elif group.main:
                run.forget_after(-1)
        elif group.main:
            run.start(recipe, facts)
        group.barrier()
        with one_thread(), reporting(progress if group.main else False, run.path) as read:
            first = {"step": 0, "tokens": 0, "total": trainer.total()}

            def report(line: dict[str, Any]) -> None:
                nonlocal planned
                if not planned and "tokens_per_s" in line:
                    planned = True
                    read({**first, "plan": plan(trainer, line["tokens_per_s"])})
                read(line)

            if announced is not None and not planned:
                read({**first, "plan": announced})
            try:
                train(
                    trainer,
                    run,
                    log_steps=recipe.run.log_steps,
                    save_minutes=recipe.run.save_minutes,
                    evaluate_every=recipe.run.evaluate_tokens,
                    patience=recipe.run.patience,
                    main=group.main,
                    report=report,
                    agree=group.any,
                )
            except Stopped:
                group.leave()  # together: one that ends alone makes the others abort
                raise
    group.leave()


def finish_recipe(recipe: Recipe, out: Path, tokens: int) -> Recipe:
    """Change a recipe so that the run in `out` ends after `tokens` more, its rate falling.

    Patience does not end it before: a run that it ended could not be finished otherwise.
    """
    state = load_state(Run.open(out).resume_path)
    seen = 0 if state is None else int(state[1]["seen"])
    # A constant rate has no decay to begin; any other keeps its form for the tokens that are left.
    decay = "linear" if recipe.schedule.decay == "constant" else recipe.schedule.decay
    total = seen + tokens
    schedule = {"tokens": total, "decay": decay, "decay_share": tokens / total}
    return recipe.replaced(schedule=schedule, run={"patience": 0})

"""From prepared text to a trained biLM."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from elmore.compute.workers import Workers
from elmore.corpus.prepared import Prepared, Shard
from elmore.embedding.load import ModelPath, read_checkpoint
from elmore.errors import ConfigError, InputError
from elmore.formats.checkpoint import Checkpoint
from elmore.nn.threads import torch_workers
from elmore.text.batching import TokenIndexer
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.training.bilm.batches import Batches, LmBatch, SentenceBatches
from elmore.training.bilm.recipe import Recipe
from elmore.training.bilm.streams import (
    MixedBatches,
    StreamBatches,
    WindowBatches,
    endless_sentences,
)
from elmore.training.bilm.trainer import LmTrainer
from elmore.training.display import TrainingProgress, reporting
from elmore.training.distributed import Group, join_group
from elmore.training.loop import Cadence, Stopped, train
from elmore.training.run import Run, load_state

__all__ = [
    "DEFAULT",
    "choose_recipe",
    "finish_recipe",
    "make_trainer",
    "one_thread",
    "pretrain",
    "run_tokens",
    "start_run",
    "train_run",
]

DEFAULT = "laptop"  # the recipe of a run that names none
# From this many tokens on, the recipe's own passes are enough. With less, the square root: half
# the text is read 1.4 times as often.
_ENOUGH_TOKENS = 10_000_000
_MAX_EPOCHS = 6  # more passes over a small text are learned by heart
_MIN_EVALUATIONS = 20  # so that the best model is found and the curve can be seen
_WARMUP_SHARE = 0.1  # of the run, at most


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
        recipe = choose_recipe(prepared, run if resume else None)
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
    options: dict[str, Any] = {"seed": seed, "threads": threads, "progress": progress}
    train_run(run, prepared, recipe, group, start=start, **options)
    group.leave()
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
    seed: int,
    threads: int | None,
    progress: TrainingProgress,
    start: Checkpoint | None = None,
    plan: str | None = None,
) -> None:
    """Start or resume a run; `start` are weights to start from, `plan` is reported first."""
    trainer = make_trainer(prepared, recipe, run, seed, group, torch_workers(threads), start)
    facts = {"seed": seed, "data": prepared.digest, "processes": group.world}
    with run.locked() if group.main else nullcontext():
        if run.exists():
            run.check(recipe, facts, write=group.main)
            if trainer.load_state() and group.main:
                run.forget_after(trainer.step_number)
            # Killed before its first save: the run starts again, and so does its log.
            elif group.main:
                run.forget_after(-1)
        elif group.main:
            run.start(recipe, facts)
        group.barrier()
        around = recipe.run
        cadence = Cadence(
            around.log_steps, around.save_minutes, around.evaluate_tokens, around.patience
        )
        with one_thread(), reporting(progress if group.main else False, run.path) as read:
            if plan is not None:
                read({"step": 0, "tokens": 0, "total": trainer.total(), "plan": plan})
            try:
                train(trainer, run, cadence, main=group.main, report=read, agree=group.any)
            except Stopped:
                group.leave()  # together: one that ends alone makes the others abort
                raise


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread here: the heavy work is on the workers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_tokens(prepared: Prepared, recipe: Recipe) -> int:
    """Tokens of a complete run; a pass predicts every word, and the end of every sentence."""
    if recipe.schedule.tokens is not None:
        return recipe.schedule.tokens
    ends = 0 if recipe.data.regime == "stream" else prepared.n_sentences
    return math.ceil(recipe.schedule.epochs * (prepared.n_tokens + ends))


def choose_recipe(
    prepared: Prepared, run: Run | None = None, settings: Mapping[str, str] | None = None
) -> Recipe:
    """The recipe where none is named; a `run` to resume keeps its own.

    Passes, warm-up and evaluations are fitted to small data, unless they are in `settings`, which
    are changed as in `Recipe.load`. Large data leave the recipe as it is.
    """
    keep = settings or {}
    if run is not None and run.exists():
        return run.recipe.changed(keep)
    recipe = Recipe.load(DEFAULT, keep)
    schedule, around = recipe.schedule, recipe.run
    if "schedule.epochs" not in keep and schedule.tokens is None:
        once = dataclasses.replace(recipe, schedule=dataclasses.replace(schedule, epochs=1.0))
        factor = math.sqrt(max(1.0, _ENOUGH_TOKENS / max(1, run_tokens(prepared, once))))
        epochs = max(schedule.epochs, min(_MAX_EPOCHS, round(schedule.epochs * factor)))
        schedule = dataclasses.replace(schedule, epochs=float(epochs))
    total = run_tokens(prepared, dataclasses.replace(recipe, schedule=schedule))
    if "schedule.warmup_tokens" not in keep:
        warmup = min(schedule.warmup_tokens, int(total * _WARMUP_SHARE))
        schedule = dataclasses.replace(schedule, warmup_tokens=warmup)
    if "run.evaluate_tokens" not in keep and around.evaluate_tokens:
        every = min(around.evaluate_tokens, max(1, total // _MIN_EVALUATIONS))
        around = dataclasses.replace(around, evaluate_tokens=every)
    return dataclasses.replace(recipe, schedule=schedule, run=around)


def finish_recipe(recipe: Recipe, out: Path, tokens: int) -> Recipe:
    """Change a recipe so that the run in `out` ends after `tokens` more, its rate falling.

    Patience does not end it before: a run that it ended could not be finished otherwise.
    """
    state = load_state(Run.open(out).resume_path)
    seen = 0 if state is None else int(state[1]["seen"])
    # A constant rate has no decay to begin; any other keeps its form for the tokens that are left.
    schedule = dataclasses.replace(
        recipe.schedule,
        tokens=seen + tokens,
        decay="linear" if recipe.schedule.decay == "constant" else recipe.schedule.decay,
        decay_share=tokens / (seen + tokens),
    )
    around = dataclasses.replace(recipe.run, patience=0)
    return dataclasses.replace(recipe, schedule=schedule, run=around)


def make_trainer(
    prepared: Prepared,
    recipe: Recipe,
    run: Run,
    seed: int,
    group: Group,
    workers: Workers,
    start: Checkpoint | None,
) -> LmTrainer:
    """What `pretrain` trains, before its first step."""
    if prepared.n_tokens == 0:
        raise InputError(f"'{prepared.folder}' holds no text; prepare some first")
    model, alphabet, vocabulary = recipe.model, None, prepared.vocabulary
    # The words that are predicted are those of the word table if the model has one.
    if model.tokens == "model" and start is not None and start.vocabulary is not None:
        vocabulary = start.vocabulary
    if model.tokens != "words" and start is not None:
        alphabet = start.alphabet
    elif model.tokens != "words":
        by_bytes = model.alphabet == "bytes"
        chars = model.max_chars
        alphabet = ByteAlphabet(chars) if by_bytes else prepared.characters(chars)
    indexer = TokenIndexer(alphabet, None if model.tokens == "characters" else vocabulary)
    notes: dict[str, Any] = {"data": {"tokens": prepared.n_tokens, "digest": prepared.digest}}
    if prepared.segmenter is not None:
        notes["tokenizer"] = f"its training text was split by {prepared.segmenter}"
    batches, heldout = make_batches(prepared, recipe, seed, group, indexer, vocabulary)
    trainer = LmTrainer(
        recipe,
        run,
        batches,
        vocabulary,
        tokenizer=prepared.tokenizer,
        total=run_tokens(prepared, recipe),
        seed=seed,
        group=group,
        workers=workers,
        heldout=heldout,
        counts=prepared.counts_of(vocabulary),
        notes=notes,
        alphabet=alphabet,
        config=None if start is None or model.tokens != "model" else start.config,
    )
    if model.vectors is not None:
        trainer.use_vectors(Path(model.vectors))
    if start is not None:
        trainer.start_from(start)
    return trainer


def make_batches(
    prepared: Prepared,
    recipe: Recipe,
    seed: int,
    group: Group,
    indexer: TokenIndexer,
    vocabulary: Vocabulary,
) -> tuple[Batches, list[LmBatch]]:
    """The training batches and the held-out batches."""

    @lru_cache(maxsize=4)  # sentences and windows read shards in orders of their own
    def read(number: int) -> Shard:
        return prepared.read(prepared.shard_paths[number])

    heldout = _heldout_batches(prepared, recipe, indexer, vocabulary)
    data = recipe.data
    shares: dict[str, Any] = {
        "bidirectional": recipe.model.bidirectional,
        "rank": group.rank,
        "world": group.world,
    }
    running = {"rows": data.batch_rows, "unroll": data.unroll, **shares}
    if data.regime == "stream":
        sentences = endless_sentences(read, [size.sentences for size in prepared.shards], seed)
        stream = StreamBatches(sentences, indexer, vocabulary, **running)
        return stream, heldout
    if data.batch_tokens < group.world:
        raise ConfigError(
            f"data.batch_tokens={data.batch_tokens} for {group.world} processes; raise it"
        )
    source = (read, len(prepared.shard_paths), indexer, vocabulary)
    single = SentenceBatches(
        *source,
        batch_tokens=data.batch_tokens,
        max_length=data.max_length,
        pool=data.pool_sentences,
        seed=seed,
        **shares,
    )
    # A few sentences hold no long window.
    if not data.long_share or max(size.tokens for size in prepared.shards) < 2 * data.unroll:
        return single, heldout
    windows = WindowBatches(*source, longest=data.long_tokens, seed=seed, **running)
    return MixedBatches(single, windows, data.long_share), heldout


def _heldout_batches(
    prepared: Prepared, recipe: Recipe, indexer: TokenIndexer, vocabulary: Vocabulary
) -> list[LmBatch]:
    """Take a fixed, seeded sample of the held-out sentences; the same in every run."""
    if prepared.heldout_path is None:
        return []
    shard = prepared.read(prepared.heldout_path)
    batches = SentenceBatches(
        lambda number: shard,
        1,
        indexer,
        vocabulary,
        batch_tokens=2048,
        max_length=recipe.data.max_length,
        # One pool: sorted batches waste the fewest steps. They are shuffled, so a few have all
        # lengths.
        pool=len(shard.sentences),
        seed=0,
        bidirectional=recipe.model.bidirectional,
    )
    taken: list[LmBatch] = []
    tokens = 0
    # Seed 0 whatever the run's own, so that runs can be compared.
    while tokens < recipe.run.heldout_tokens:
        batch = batches.next()
        if batches.cursor()["epoch"]:
            break
        taken.append(batch)
        tokens += batch.n_tokens
    return taken

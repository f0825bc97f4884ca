"""Adapt a trained biLM to other text (Peters et al. 2018, Appendix A.1 and Table 7)."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.base.messages import readable_time, shown
from elmore.corpus.prepare import prepare
from elmore.corpus.prepared import Prepared
from elmore.embedding.load import ModelPath, read_checkpoint
from elmore.formats.checkpoint import Checkpoint
from elmore.text.characters import DictionaryAlphabet
from elmore.text.segmenter import Tokenizer
from elmore.text.vocabulary import USUAL
from elmore.training.bilm.pretrain import start_run, train_run
from elmore.training.bilm.recipe import ModelRecipe, Recipe
from elmore.training.bilm.trainer import LmTrainer
from elmore.training.display import TrainingProgress
from elmore.training.run import Run

if TYPE_CHECKING:
    from elmore.elmo import Elmo


def fine_tune(
    model: Elmo | ModelPath,
    texts: Sequence[str | Path],
    out: str | Path,
    *,
    recipe: Recipe | str | Path = "fine-tune",
    epochs: float | None = None,
    vocabulary: int | Path | None = None,
    heldout: float = 0.05,
    tokenized: bool = False,
    tokenizer: Tokenizer | None = None,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    threads: int | None = None,
    device: str = "cpu",
    progress: TrainingProgress = None,
) -> Run:
    """Continue training a model on other text.

    A model with a softmax keeps it and its vocabulary. One without (published HDF5 weights never
    have one) gets a new softmax over the text's own words, which learns alone for the first third
    of the run.

    Args:
        model: a loaded model, or what `Elmo.load` takes.
        texts: files or patterns, as `prepare` takes them.
        out: the folder of the run.
        recipe: how to train; the shape comes from the model.
        epochs: passes over the text, instead of the recipe's.
        vocabulary: words of a new softmax, as `prepare` takes them.
        heldout: share of the documents that decides when to stop.
        tokenized: whether lines are tokens separated by spaces.
        tokenizer: how other lines are split, as in `Elmo.load`; by default as for the model.
        seed: the one seed.
        resume: continue the run in `out`.
        overwrite: as in `pretrain`.
        threads: processors to use; all by default.
        device: where to compute.
        progress: as in `pretrain`.
    """
    if isinstance(model, str | Path | tuple):
        checkpoint = read_checkpoint(model)
    else:
        checkpoint = model.checkpoint
        tokenizer = model.engine.compute.tokenizer if tokenizer is None else tokenizer
    if tokenizer is None and not tokenized:
        checkpoint.warn_of_tokenizer()
    tokenizer = checkpoint.tokenizer if tokenizer is None else tokenizer
    own = isinstance(checkpoint.alphabet, DictionaryAlphabet)
    shape = ModelRecipe.from_config(checkpoint.config, alphabet="characters" if own else "bytes")
    run = Run(out)
    recipe = recipe if isinstance(recipe, Recipe) else Recipe.load(recipe)
    if epochs is not None:
        recipe = recipe.replaced(schedule={"epochs": float(epochs), "tokens": None})
    group = start_run(run, device, resume=resume, overwrite=overwrite)
    # One process prepares for all: they share the folder.
    group.first(
        lambda: _prepare(
            checkpoint,
            texts,
            run,
            vocabulary=vocabulary,
            heldout=heldout,
            tokenized=tokenized,
            tokenizer=tokenizer,
            seed=seed,
            progress=False if progress is False else None,  # it has no log
        )
    )
    data = Prepared.open(run.path / "data")
    if checkpoint.softmax is None and not recipe.schedule.frozen_tokens:
        # A third of the run: the new softmax must fit the biLM before the biLM moves.
        recipe = recipe.replaced(schedule={"frozen_tokens": recipe.total_tokens(data) // 3})
    recipe = dataclasses.replace(recipe, model=shape)
    tokens = recipe.total_tokens(data)
    patience = ", less if it stops improving" if recipe.run.patience else ""

    def plan(trainer: LmTrainer, speed: float) -> str:
        return f"about {readable_time(tokens / speed)}{patience}"

    train_run(
        run,
        data,
        recipe,
        group,
        plan=plan,
        seed=seed,
        threads=threads,
        progress=progress,
        start=checkpoint,
        announced=f"fine-tuning {shown(checkpoint.origin, 120)} on {data.n_tokens:,} tokens: "
        f"{tokens:,} tokens to read",
    )
    return run


def _prepare(checkpoint: Checkpoint, texts: Sequence[str | Path], run: Run, **options: Any) -> None:
    """Prepare the text inside the run's folder, with the model's own words and tokens."""
    folder = run.path / "data"
    # It gets its name when it is complete, so what is there can be used; but without a run it may
    # be other text, of a fine-tuning that never began.
    if folder.is_dir() and run.exists():
        return
    run.path.mkdir(parents=True, exist_ok=True)
    # A word table is tied to its vocabulary, even where there is no softmax.
    kept = checkpoint.softmax is not None or checkpoint.config.tokens.n_words
    # Words with other markers cannot be those of prepared text; the trainer brings them itself.
    usual = checkpoint.vocabulary is not None and checkpoint.vocabulary.specials == USUAL
    if kept and usual and checkpoint.vocabulary is not None:
        options["vocabulary"] = run.path / "vocab.txt"
        options["vocabulary"].write_bytes(checkpoint.vocabulary.to_bytes())
    with warnings.catch_warnings():
        # The model's words are in the order of the text that it was trained on, and must stay so.
        warnings.filterwarnings("ignore", ".* is not sorted by frequency", UserWarning)
        prepare(texts, folder, overwrite=True, **options)

"""`elmore fine-tune`: adapt a biLM to your text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from elmore.cli import options
from elmore.cli.console import Console, common, write_json
from elmore.cli.pretrain import draw_curve, ending_by_signal
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from elmore.embedding.load import ModelPath

__all__ = ["fine_tune"]

_EXAMPLES = """\
  elmore fine-tune reviews.txt -o runs/a
  elmore fine-tune reviews.txt --model runs/a/best -o runs/b
  elmore fine-tune reviews/*.txt.gz --model options.json,weights.hdf5 -o runs/b --epochs 3
  elmore convert runs/b/best -o reviews-elmo --to allennlp

A model without a softmax (published HDF5) gets a new one, which is trained alone at first. Ctrl-C
saves the run and stops it; --resume continues.
"""


@click.command("fine-tune", epilog=options.examples(_EXAMPLES))
@click.argument("inputs", nargs=-1, metavar="INPUT...")
@options.model()
@options.force_output("Folder of the run.", required=True)
@options.recipe("fine-tune")
@click.option("--epochs", type=float, metavar="N", help="Passes over the text.")
@click.option(
    "--heldout",
    type=float,
    default=0.05,
    metavar="SHARE",
    help="Share of the documents to hold out.",
)
@click.option("--tokenized", is_flag=True, help="Lines are tokens separated by spaces.")
@options.tokenizer()
@options.resume
@options.seed
@click.option("--tensorboard", is_flag=True, help="Write event files too.")
@options.device
@options.threads
@common()
def fine_tune(
    *,
    inputs: tuple[str, ...],
    model: ModelPath | None,
    output: Path,
    force: bool,
    recipe: str,
    settings: tuple[str, ...],
    epochs: float | None,
    heldout: float,
    tokenized: bool,
    tokenizer: str | None,
    resume: bool,
    seed: int,
    tensorboard: bool,
    device: str,
    threads: int | None,
    console: Console,
) -> None:
    """Adapt a biLM to your text: INPUT are text files or patterns."""
    # A run that is resumed remembers its text.
    if not inputs and not resume:
        raise ConfigError("name the text to adapt the model to; see `elmore fine-tune --help`")
    if resume and force:
        raise ConfigError("--resume and --force exclude each other; leave one out")
    from elmore.published.catalog import bundled_model
    from elmore.training.bilm.fine_tune import fine_tune as adapt
    from elmore.training.bilm.recipe import Recipe
    from elmore.training.display import Display, heldout_headline

    display = Display(output, quiet=console.quiet, tensorboard=tensorboard)
    with ending_by_signal(), display:
        done = adapt(
            bundled_model() if model is None else model,
            inputs,
            output,
            recipe=Recipe.load(recipe, options.overrides(settings)),
            epochs=epochs,
            heldout=heldout,
            tokenized=tokenized,
            tokenizer=tokenizer,
            seed=seed,
            resume=resume,
            overwrite=force,
            threads=threads,
            device=device,
            progress=display.show,
        )
    draw_curve(done)
    evaluations = [line["heldout"] for line in done.log() if "heldout" in line]
    best: dict[str, float] = min(evaluations, key=lambda found: found["loss"], default={})
    if console.json:
        perplexities = [found["perplexity"] for found in evaluations]
        report = {"run": str(done.path), "heldout_perplexities": perplexities}
        write_json({**report, "heldout": best})
    else:
        gain = f", held-out perplexity {heldout_headline(best)}" if best else ""
        what = "best model is in" if done.best_path.is_dir() else "model is in"
        path = done.best_path if done.best_path.is_dir() else done.checkpoint_path
        console.say(f"fine-tuned {done.path}{gain}; the {what} {path}")
    console.warn_if_misleading(best.get("oov_rate", 0.0))

"""`elmore fine-tune`: adapt a biLM to your text."""

from __future__ import annotations

import argparse
from pathlib import Path

from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import say, write_json
from elmore.cli.training import (
    add_recipe,
    add_training,
    ending_by_signal,
    overrides,
    warn_if_misleading,
)
from elmore.errors import ConfigError

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore fine-tune reviews.txt -o runs/a
  elmore fine-tune --model runs/a/best reviews.txt -o runs/b
  elmore fine-tune --model options.json weights.hdf5 reviews/*.txt.gz -o runs/b --epochs 3
  elmore convert runs/b/best -o reviews-elmo --to allennlp

A model without a softmax (published HDF5) gets a new one, which is trained alone at first.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_model(parser)
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help="text files or patterns; the first may name the model instead of --model",
    )
    flags.add_output(parser, "folder of the run", required=True)
    add_recipe(parser, "fine-tune")
    parser.add_argument("--epochs", type=float, metavar="N", help="passes over the text")
    flags.add(parser, "--heldout", default=0.05)
    flags.add(parser, "--tokenized", "--tokenizer")
    add_training(parser)
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Train and report the best held-out perplexity."""
    model, texts = flags.model_and_inputs(args)
    # A run that is resumed remembers its text.
    if not texts and not args.resume:
        raise ConfigError("name the text to adapt the model to; see `elmore fine-tune --help`")
    from elmore.training.bilm.fine_tune import fine_tune
    from elmore.training.bilm.recipe import Recipe
    from elmore.training.display import Display, heldout_headline

    display = Display(Path(args.output), quiet=args.quiet, tensorboard=args.tensorboard)
    with ending_by_signal(), display:
        done = fine_tune(
            model,
            texts,
            args.output,
            recipe=Recipe.load(args.recipe, overrides(args.set)),
            epochs=args.epochs,
            heldout=args.heldout,
            tokenized=args.tokenized,
            tokenizer=args.tokenizer,
            seed=args.seed,
            resume=args.resume,
            threads=args.threads,
            device=args.device,
            progress=display.show,
        )
    evaluations = [line["heldout"] for line in done.log() if "heldout" in line]
    best: dict[str, float] = min(evaluations, key=lambda found: found["loss"], default={})
    if args.json:
        perplexities = [found["perplexity"] for found in evaluations]
        report = {"run": str(done.path), "heldout_perplexities": perplexities}
        write_json({**report, "heldout": best})
    elif not args.quiet:
        gain = f", held-out perplexity {heldout_headline(best)}" if best else ""
        what = "best model is in" if done.best_path.is_dir() else "model is in"
        place = done.best_path if done.best_path.is_dir() else done.checkpoint_path
        say(f"fine-tuned {done.path}{gain}; the {what} {place}")
    warn_if_misleading(best.get("oov_rate", 0.0), quiet=args.quiet)
    return 0

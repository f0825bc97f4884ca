"""`elmore convert`: convert a model into another format or precision."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.base.atomic import atomic_folder
from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import say, write_json
from elmore.errors import ConfigError, ElmoreError
from elmore.text.tokenizer import CONVENTIONS

if TYPE_CHECKING:
    from elmore.embedding.load import ModelPath
    from elmore.formats.checkpoint import Checkpoint

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore convert options.json weights.hdf5 -o my-model
  elmore convert my-model -o quarter/ --precision int8
  elmore convert model.ckpt-10 -o old/ --to allennlp
"""

# Largest difference that is accepted, relative to the largest value. float32 is copied bit by bit;
# float16 rounds each weight to 11 bits. int8 is compared with int8 computed from the original, so
# nothing may differ; the certificate says what int8 costs.
_TOLERANCE = {"float32": 1e-6, "float16": 0.05, "int8": 1e-6}


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_model(parser, positional=True)
    flags.add_output(parser, "folder to create", required=True)
    parser.add_argument(
        "--to", choices=("folder", "allennlp"), default="folder", help="format (default: folder)"
    )
    flags.add(
        parser,
        "--precision",
        choices=tuple(_TOLERANCE),
        default="float32",
        help="type of the stored weights (default: float32)",
    )
    flags.add(
        parser,
        "--tokenizer",
        choices=CONVENTIONS,
        help=f"store how raw text is split: {', '.join(CONVENTIONS)} (default: as it was)",
    )
    flags.add(parser, "--start")
    parser.add_argument(
        "--no-verify",
        action="store_true",
        help="do not embed a text with both models to compare them",
    )
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Write a copy of a model; it appears under its name only after it was verified."""
    from elmore.formats import allennlp_hdf5, elmore_folder

    if args.to == "allennlp" and (args.precision != "float32" or args.start != "zeros"):
        raise ConfigError("AllenNLP's files store float32 and no start state; use --to folder")
    if not args.model and not args.model_words:
        raise ConfigError("name the MODEL to convert; see `elmore convert --help`")
    model, output = flags.chosen_model(args), Path(args.output)
    _refuse_itself(model, output)
    checkpoint = flags.read_model(model).with_tokenizer(args.tokenizer)
    # --force deletes only folders that are models, never others that happen to have the name.
    looks_ours = elmore_folder.is_folder if args.to == "folder" else allennlp_hdf5.is_folder
    difference = None
    with atomic_folder(output, overwrite=args.force, looks_ours=looks_ours) as temporary:
        certificate = _write(args, checkpoint, temporary)
        if not args.no_verify:
            difference = _verify(checkpoint, temporary, args.precision)
    left_out = _left_out(args.to, checkpoint)
    if args.json:
        report = {"output": args.output, "format": args.to, "max_difference": difference}
        write_json({**report, "left_out": left_out, "certificate": certificate})
    elif not args.quiet:
        verified = (
            "not verified"
            if difference is None
            else f"verified: vectors differ by {difference:.2g} at most"
        )
        if certificate is not None:
            cosine = ", ".join(f"{value:.5f}" for value in certificate["mean_cosine"])
            verified += f"; mean cosine to float32 by layer {cosine}"
        lost = f"; left out: {', '.join(left_out)}" if left_out else ""
        say(f"wrote '{args.output}' ({args.to}, {args.precision}); {verified}{lost}")
    return 0


def _left_out(to: str, checkpoint: Checkpoint) -> list[str]:
    """What AllenNLP's files cannot store and the vectors do not need."""
    if to == "folder":
        return []
    parts = {
        "mixes": bool(checkpoint.mixes),
        "start state": checkpoint.start_state is not None,
        # That nobody knows the tokenization is true of the copy too.
        "notes": bool(checkpoint.notes.keys() - {"tokenizer"}),
    }
    return [name for name, there in parts.items() if there]


def _refuse_itself(model: ModelPath | None, output: Path) -> None:
    # With --force the copy would replace the model.
    for path in model if isinstance(model, tuple) else (model,):
        if path is not None and os.path.exists(path) and output.exists():
            inside = output.resolve() in (Path(path).resolve(), *Path(path).resolve().parents)
            if inside:
                raise ConfigError(f"'{output}' is the model itself; choose another -o")


def _write(args: argparse.Namespace, checkpoint: Checkpoint, path: Path) -> dict[str, Any] | None:
    """Write the model; returns what its precision costs, if that was measured."""
    from elmore.formats import allennlp_hdf5, elmore_folder

    if args.to == "allennlp":
        allennlp_hdf5.write(checkpoint, path)
        return None
    if args.precision != "float32" and not args.no_verify:
        from elmore.embedding.certificate import CERTIFICATE, certified

        checkpoint = certified(checkpoint, args.precision)
        certificate: dict[str, Any] | None = dict(checkpoint.notes[CERTIFICATE])
    else:
        certificate = None
    if args.start == "warm":
        from elmore.embedding.engine import Engine
        from elmore.options import Compute

        start = Engine(checkpoint, Compute(start="warm")).start_state
        checkpoint = dataclasses.replace(checkpoint, start_state=start)
    elmore_folder.write(checkpoint, path, precision=args.precision)
    return certificate


def _verify(before: Checkpoint, written: Path, precision: str) -> float:
    """Embed a text with both models; returns the largest difference."""
    import numpy as np

    from elmore.elmo import Elmo
    from elmore.embedding.certificate import fixed_text
    from elmore.embedding.load import read_checkpoint

    text = fixed_text(before)
    old = Elmo(before, precision="int8" if precision == "int8" else "float32").layers(
        text, tokenized=True
    )
    new = Elmo(read_checkpoint(written)).layers(text, tokenized=True)
    difference = max(
        float(np.abs(a.values - b.values).max()) for a, b in zip(old, new, strict=True)
    )
    largest = max(float(np.abs(a.values).max()) for a in old)
    if not difference <= _TOLERANCE[precision] * max(1.0, largest):
        raise ElmoreError(
            f"verification failed: vectors differ by {difference:.3g}, nothing was written; "
            f"{'store float32' if precision == 'float16' else 'report this with --debug'}"
        )
    return difference

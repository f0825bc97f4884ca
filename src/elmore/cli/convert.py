"""`elmore convert`: convert a model into another format or precision."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.base.atomic import atomic_folder
from elmore.cli import options
from elmore.cli.console import Console
from elmore.errors import ConfigError, ElmoreError
from elmore.text.tokenizer import CONVENTIONS

if TYPE_CHECKING:
    from elmore.embedding.load import ModelPath
    from elmore.formats.checkpoint import Checkpoint

_EXAMPLES = """\
  elmore convert options.json weights.hdf5 -o my-model
  elmore convert my-model -o quarter/ --precision int8
  elmore convert model.ckpt-10 -o old/ --to allennlp
"""

# Largest difference that is accepted, relative to the largest value. float32 is copied bit by bit;
# float16 rounds each weight to 11 bits. int8 is compared with int8 computed from the original, so
# nothing may differ; the certificate says what int8 costs.
_TOLERANCE = {"float32": 1e-6, "float16": 0.05, "int8": 1e-6}


@options.verb(_EXAMPLES)
def convert(
    *,
    model: tuple[str, ...] = options.argument("MODEL", nargs=-1, required=True),
    offline: bool = options.offline,
    output: Path = options.output("Folder to create.", required=True),
    force: bool = options.force,
    to: str = options.choice(["folder", "allennlp"], "folder", "Format to write."),
    precision: Any = options.choice(tuple(_TOLERANCE), "float32", "Type of the stored weights."),
    tokenizer: Any = options.choice(
        CONVENTIONS,
        None,
        f"Store how raw text is split: {', '.join(CONVENTIONS)}; by default as it was.",
        metavar="NAME",
    ),
    start: str = options.start,
    no_verify: bool = options.flag("Do not embed a text with both models to compare them."),
    console: Console,
) -> None:
    """MODEL is a name of `elmore models`, a path, or two files OPTIONS WEIGHTS. The copy appears
    under its name only after it was verified.
    """
    from elmore.embedding.certificate import CERTIFICATE, certified
    from elmore.formats import allennlp_hdf5, elmore_folder

    if to == "allennlp" and (precision != "float32" or start != "zeros"):
        raise ConfigError("AllenNLP's files store float32 and no start state; use --to folder")
    source = options.model_path(model)
    _refuse_itself(source, output)
    checkpoint = options.read_model(source).with_tokenizer(tokenizer)
    # --force deletes only folders that are models, never others that happen to have the name.
    looks_ours = elmore_folder.is_folder if to == "folder" else allennlp_hdf5.is_folder
    difference, left_out, verified = None, [], "not verified"
    with atomic_folder(output, overwrite=force, looks_ours=looks_ours) as temporary:
        if to == "allennlp":
            allennlp_hdf5.write(checkpoint, temporary)
            left_out = _left_out(checkpoint)
        else:
            if start == "warm":
                checkpoint = _warmed(checkpoint)
            if not no_verify:
                checkpoint = certified(checkpoint, precision)
            elmore_folder.write(checkpoint, temporary, precision=precision)
        if not no_verify:
            difference = _verify(checkpoint, temporary, precision)
            verified = f"verified: vectors differ by {difference:.2g} at most"
    certificate = None if no_verify or to == "allennlp" else checkpoint.notes.get(CERTIFICATE)
    if certificate is not None:
        cosine = ", ".join(f"{value:.5f}" for value in certificate["mean_cosine"])
        verified += f"; mean cosine to float32 by layer {cosine}"
    lost = f"; left out: {', '.join(left_out)}" if left_out else ""
    report = {"output": str(output), "format": to, "max_difference": difference}
    console.done(
        {**report, "left_out": left_out, "certificate": certificate},
        f"wrote '{output}' ({to}, {precision}); {verified}{lost}",
    )


def _left_out(checkpoint: Checkpoint) -> list[str]:
    """What AllenNLP's files cannot store and the vectors do not need."""
    parts = {
        "mixes": bool(checkpoint.mixes),
        "start state": checkpoint.start_state is not None,
        # That nobody knows the tokenization is true of the copy too.
        "notes": bool(checkpoint.notes.keys() - {"tokenizer"}),
    }
    return [name for name, there in parts.items() if there]


def _refuse_itself(model: ModelPath, output: Path) -> None:
    # With --force the copy would replace the model.
    for path in map(Path, model if isinstance(model, tuple) else (model,)):
        if path.exists() and output.resolve() in (path.resolve(), *path.resolve().parents):
            raise ConfigError(f"'{output}' is the model itself; choose another -o")


def _warmed(checkpoint: Checkpoint) -> Checkpoint:
    """A model that has its state after a short text."""
    from elmore.embedding.engine import Engine
    from elmore.embedding.stateful import burn_in

    warm = checkpoint.start_state or burn_in(Engine(checkpoint))
    return dataclasses.replace(checkpoint, start_state=warm)


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

"""`elmore info`: what a model or a trained task is, without torch."""

from __future__ import annotations

import argparse
import platform
import re
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore._io import sha256_stream
from elmore._json import read_json
from elmore._machine import available_threads
from elmore._messages import shown
from elmore._version import __version__
from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import write_json, write_result
from elmore.errors import FormatError
from elmore.tasks.places import FACTS, find_task

if TYPE_CHECKING:
    from elmore.formats.checkpoint import Checkpoint
    from elmore.formats.detect import ModelPath
    from elmore.formats.files.sources import Source

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
  elmore info my-model
  elmore info runs/ner
  elmore info options.json weights.hdf5 --json
  elmore info --system
"""

# A model's folder may hold anything else besides; only these are hashed.
_MODEL_FILES = (
    *(".safetensors", ".hdf5", ".h5", ".pkl", ".th", ".pt", ".pth", ".index"),
    *(".json", ".txt", ".gz", ".dic", ".md", ".options_file", ".weight_file"),
)
_SHARD = re.compile(r"\.data-\d{5}-of-\d{5}$")


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_model(parser, positional=True)
    parser.add_argument(
        "--system", action="store_true", help="the machine and versions; no model is needed"
    )
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Describe a model or a trained task, the machine, or both."""
    report: dict[str, Any] = {}
    if args.model or args.model_words or not args.system:
        report.update(_describe_any(flags.chosen_model(args)))
    if args.system:
        report["system"] = _system()
    if args.json:
        write_json(report)
    else:
        write_result("\n".join(_lines(report)))
    return 0


def _describe_any(model: ModelPath) -> dict[str, Any]:
    """Describe a model, a trained task, or what a run has made of either."""
    if isinstance(model, tuple):
        return _describe(model)
    path = Path(model)
    if (trained := find_task(path)) is not None:
        return _describe_task(trained)
    if not (path / "recipe.json").is_file() or (path / "config.json").is_file():
        return _describe(model)
    for place in (path / "best", path / "checkpoint"):
        if place.is_dir():
            return _describe(place)
    raise FormatError(
        f"'{shown(path, 140)}' is a run without a checkpoint yet; let it train a little longer"
    )


def _describe_task(place: Path) -> dict[str, Any]:
    facts = read_json(place / FACTS)
    try:
        recipe, use = facts["recipe"], facts["recipe"]["elmo"]
        report = {
            "task": facts["task"],
            "folder": str(place),
            "recipe": recipe["name"],
            "scores": {name: round(value, 2) for name, value in facts["scores"].items()},
            "network": dict(recipe["model"]),
        }
        digest, precision = facts["elmo"], facts.get("precision")
        places = ", ".join(name for name in ("input", "output") if use[name])
        layers = use["layers"]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise FormatError(f"'{shown(place, 140)}' is no folder of a task; restore it") from None
    if digest is None:
        return {**report, "elmo": None}
    elmo: dict[str, Any] = {"digest": digest, "at": places, "mixes": layers, "precision": precision}
    if (place / "elmo").is_dir():
        checkpoint = flags.read_model(place / "elmo")
        config = checkpoint.config
        elmo |= {"model": checkpoint.origin, "dim": config.dim, "layers": config.n_layers}
    return {**report, "elmo": elmo}


def _describe(model: ModelPath) -> dict[str, Any]:
    from elmore.config import count_parameters
    from elmore.formats.detect import detect, open_model

    checkpoint = flags.read_model(model)
    config, notes = checkpoint.config, dict(checkpoint.notes)
    with open_model(model) as source:
        form = detect(source)
        files = _files(source)
        precision = ", ".join(sorted(form.stored_types(source)))
    return {
        "model": checkpoint.origin,
        "format": form.NAME,
        "dim": config.dim,
        "layers": config.n_layers,
        "parameters": count_parameters(config),
        "languages": _languages(checkpoint),
        "tokens": _tokens(checkpoint),
        "lstm": {
            "dim": config.lstm.dim,
            "projection_dim": config.lstm.projection_dim,
            "layers": config.lstm.n_layers,
            "directions": len(config.directions),
            "cell_clip": config.lstm.cell_clip,
            "proj_clip": config.lstm.proj_clip,
            "skip_connections": config.lstm.skip_connections,
            "mixed": config.lstm.mixed,
        },
        "tokenizer": checkpoint.tokenizer,
        "vocabulary": None if checkpoint.vocabulary is None else len(checkpoint.vocabulary),
        "softmax": checkpoint.softmax is not None,
        "lexicons": _lexicons(checkpoint),
        "warm_start": checkpoint.start_state is not None,
        "mixes": len(checkpoint.mixes),
        "precision": precision,
        "bytes": sum(file["bytes"] for file in files),
        "files": files,
        "certificate": notes.pop("certificate", None),
        "notes": {name: note for name, note in notes.items() if name != "languages"},
    }


def _languages(checkpoint: Checkpoint) -> str | None:
    """Name the languages that the model's own files tell of."""
    known = checkpoint.notes.get("languages", checkpoint.notes.get("language"))
    if isinstance(known, str):
        return known
    if isinstance(known, list) and known:
        return ", ".join(str(name) for name in known)
    return None


def _lexicons(checkpoint: Checkpoint) -> dict[str, int]:
    """Count the entries of what text is looked up in."""
    found: dict[str, int] = {}
    if checkpoint.alphabet is not None:
        found["characters"] = checkpoint.alphabet.n_characters
    if checkpoint.config.tokens.n_words:
        found["words_in"] = checkpoint.config.tokens.n_words
    if checkpoint.softmax is not None:
        found["words_out"] = checkpoint.softmax.n_words
    return found


def _tokens(checkpoint: Checkpoint) -> dict[str, Any]:
    tokens = checkpoint.config.tokens
    result: dict[str, Any] = {}
    if tokens.n_characters and checkpoint.alphabet is not None:
        result |= {
            "alphabet": checkpoint.alphabet.kind,
            "characters": tokens.n_characters,
            "max_chars": tokens.max_chars,
            "char_dim": tokens.char_dim,
            "filters": [list(pair) for pair in tokens.filters],
            "activation": tokens.activation,
            "highways": tokens.n_highway,
        }
    if tokens.n_words:
        result |= {"words": tokens.n_words, "word_dim": tokens.word_dim}
    return {**result, "projected": tokens.projected}


def _files(source: Source) -> list[dict[str, Any]]:
    files = []
    for name in source.names():
        if not name.lower().endswith(_MODEL_FILES) and not _SHARD.search(name):
            continue
        try:
            with closing(source.open(name)) as stream:
                files.append(
                    {"name": name, "bytes": source.size(name), "sha256": sha256_stream(stream)}
                )
        except FormatError:
            continue  # a link or FIFO beside the model, of which reading it made no use
    return files


def _system() -> dict[str, Any]:
    from elmore.kernels.native import native

    choice = native()
    return {
        "elmore": __version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "numpy", "h5py", "safetensors")},
        "platform": platform.platform(),
        "processors": available_threads(),
        "native": choice.module is not None,
        "native_reason": choice.reason,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _lines(report: dict[str, Any], indent: str = "") -> list[str]:
    lines: list[str] = []
    for key, value in report.items():
        label = f"{indent}{key.replace('_', ' ')}"
        if key == "files":
            lines += [
                f"file              {f['name']}: {f['bytes']:,} bytes, SHA-256 {f['sha256']}"
                for f in value
            ]
        elif isinstance(value, dict) and key == "notes":
            lines += [
                f"{'note':<20}{shown(name)}: {shown(text, 300)}" for name, text in value.items()
            ]
        elif isinstance(value, dict):
            lines += [label, *_lines(value, indent + "  ")]
        else:
            lines.append(f"{label:<20}{_shown(value)}")
    return lines


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else shown(value, 300)

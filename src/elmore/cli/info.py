"""`elmore info`: describes a model, a trained task or the system; no torch."""

from __future__ import annotations

import argparse
import platform
import re
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore._version import __version__
from elmore.base.io import sha256_stream
from elmore.base.json import read_json
from elmore.base.machine import available_threads
from elmore.base.messages import shown
from elmore.cli import flags
from elmore.cli.parsing import Parser
from elmore.cli.report import write_json, write_result
from elmore.errors import ConfigError, FormatError

if TYPE_CHECKING:
    from elmore.embedding.load import ModelPath
    from elmore.formats.checkpoint import Checkpoint
    from elmore.formats.containers.sources import Source

__all__ = ["EXAMPLES", "FIELDS", "add_arguments", "run"]

# What each printed field means; nested fields have a dot in their name.
FIELDS = {
    "model": "where the model was read from",
    "format": "the file format: folder, allennlp, tensorflow, manylangs or allennlp-archive",
    "dim": "size of a token's vector, both directions together",
    "layers": "layers to choose from with --layers, including layer 0 (without context)",
    "parameters": "number of weights, without the softmax",
    "languages": "languages, where the model's files name them",
    "tokens": "how a token becomes a vector, before the LSTMs",
    "tokens.alphabet": "unit of spelling: bytes (UTF-8) or characters",
    "tokens.characters": "number of different units",
    "tokens.max_chars": "longest word in units, with its two markers; longer words are cut",
    "tokens.char_dim": "size of the embedding of one unit",
    "tokens.filters": "convolutions over the spelling, as [width, count] pairs",
    "tokens.activation": "function after the convolutions",
    "tokens.highways": "number of highway layers after the convolutions",
    "tokens.words": "words in the input word table, if the model has one",
    "tokens.word_dim": "size of an input word embedding",
    "tokens.projected": "whether a linear layer maps the features to the LSTM's input size",
    "lstm": "the two stacks of LSTM layers",
    "lstm.dim": "cells per layer and direction",
    "lstm.projection_dim": "size of a layer's output per direction",
    "lstm.layers": "LSTM layers per direction",
    "lstm.directions": "2, or 1 for a forward language model",
    "lstm.cell_clip": "cell state is clipped to +- this value",
    "lstm.proj_clip": "output is clipped to +- this value",
    "lstm.skip_connections": "whether layers add their input to their output",
    "lstm.mixed": "whether each layer reads both directions (ELMoForManyLangs' lstm encoder)",
    "tokenizer": "tokenization of the training text, used for your text too",
    "vocabulary": "words that the language model can predict",
    "softmax": "whether it can predict words: needed by score and perplexity",
    "lexicons": "entries of the lookup tables",
    "lexicons.characters": "units of spelling",
    "lexicons.words_in": "words that can be read",
    "lexicons.words_out": "words that can be predicted",
    "warm_start": "whether the state for --start warm is stored with the model",
    "mixes": "trained layer weights that came with the model",
    "precision": "type of the stored weights; the model runs in it by default",
    "weights": "whether --verify read every weight: none NaN or infinite, checksums right",
    "bytes": "size of all files",
    "files": "name, size and SHA-256 of each file",
    "certificate": "how far a reduced precision is from float32, on a fixed text",
    "certificate.precision": "the reduced precision",
    "certificate.against": "what it is compared with",
    "certificate.tokens": "tokens of the fixed text",
    "certificate.mean_cosine": "mean cosine of the vectors, per layer",
    "certificate.min_cosine": "lowest cosine, per layer",
    "certificate.max_error": "largest difference of a number, per layer",
    "certificate.max_value": "largest absolute number, per layer",
    "certificate.probes": "accuracy of probes in both precisions, if they were measured",
    "notes": "what the model's files say about its training",
    "task": "name of the trained task",
    "folder": "where the trained task is",
    "recipe": "training recipe",
    "scores": "scores on the development data",
    "network": "sizes of the task's network, as in the recipe",
    "elmo": "the biLM below the task; none for a baseline",
    "elmo.digest": "checksum of its weights",
    "elmo.at": "where its vectors enter: input, output or both",
    "elmo.mixes": "layers it offers to the task's mix, as in the recipe",
    "elmo.precision": "precision it runs in",
    "elmo.model": "where it is",
    "elmo.dim": "size of its vectors",
    "elmo.layers": "its layers, including layer 0",
    "elmo.weights": "whether --verify read them",
    "index": "a folder that `elmore index` wrote",
    "index.path": "where it is",
    "index.words": "number of indexed words",
    "index.uses": "number of their uses",
    "index.sources": "number of text files",
    "index.made_with": "name or path of its model, if it has one",
    "index.tokenizer": "how its text was split",
    "index.bytes": "size of all files",
    "index.checksums": "whether --verify compared all files with their SHA-256",
    "system": "the machine, with --system",
    "system.elmore": "version of elmore",
    "system.python": "version of Python",
    "system.torch": "version, or none if it is not installed; the same for the next three",
    "system.numpy": "version",
    "system.h5py": "version",
    "system.safetensors": "version",
    "system.platform": "operating system",
    "system.processors": "CPUs that this process may use",
    "system.native": "whether the C extension is used",
    "system.native_reason": "why it is used, or why not",
}

EXAMPLES = """\
  elmore info english
  elmore info runs/ner
  elmore info options.json weights.hdf5 --json
  elmore info my-model --verify
  elmore info uses/ --verify
  elmore info --system

fields (a model, then a trained task, an index, and the system):
""" + "".join(
    f"{'  ' * name.count('.')}  {name.rpartition('.')[2].replace('_', ' ')}: {text}\n"
    for name, text in FIELDS.items()
)

# A model's folder may contain anything else too; only these are hashed.
_MODEL_FILES = (
    *(".safetensors", ".hdf5", ".h5", ".pkl", ".th", ".pt", ".pth", ".index"),
    *(".json", ".txt", ".gz", ".dic", ".md", ".options_file", ".weight_file"),
)
# The parts of a TensorFlow checkpoint have no suffix of their own.
_SHARD = re.compile(r"\.data-\d{5}-of-\d{5}$")


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    flags.add_model(parser, positional=True)
    parser.add_argument(
        "--system",
        action="store_true",
        help="describe the machine and the versions of packages instead",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="read every weight: NaN, infinity and wrong checksums are errors",
    )
    flags.add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Describe a model, a trained task, the machine, or both."""
    report: dict[str, Any] = {}
    if args.model or args.model_words or not args.system:
        report.update(_describe_any(flags.chosen_model(args), args.verify))
    elif args.verify:
        raise ConfigError("--verify needs a model; name one or leave --verify out")
    if args.system:
        report["system"] = _system()
    if args.json:
        write_json(report)
    else:
        write_result("\n".join(_lines(report)))
    return 0


def _describe_any(model: ModelPath, verify: bool) -> dict[str, Any]:
    """Describe a model, a trained task, an index, or what a run has produced of either."""
    from elmore.senses.index import is_index
    from elmore.tasks.folder import find_task

    if isinstance(model, tuple):
        return _describe(model, verify)
    path = Path(model)
    if is_index(path):
        return {"index": _describe_index(path, verify)}
    # The order matters: a trained task contains a biLM, and a run contains either of them.
    if (trained := find_task(path)) is not None:
        return _describe_task(trained, verify)
    if not (path / "recipe.json").is_file() or (path / "config.json").is_file():
        return _describe(model, verify)
    # The best checkpoint exists once there was an evaluation.
    for place in (path / "best", path / "checkpoint"):
        if place.is_dir():
            return _describe(place, verify)
    raise FormatError(
        f"'{shown(path, 140)}' is a run without a checkpoint yet; let it train a little longer"
    )


def _describe_task(place: Path, verify: bool) -> dict[str, Any]:
    from elmore.tasks.folder import FACTS

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
    except (AttributeError, KeyError, TypeError, ValueError):  # edited or damaged
        raise FormatError(
            f"'{shown(place, 140)}' is not the folder of a trained task; restore it"
        ) from None
    if digest is None:  # a baseline without ELMo
        return {**report, "elmo": None}
    elmo: dict[str, Any] = {"digest": digest, "at": places, "mixes": layers, "precision": precision}
    if (place / "elmo").is_dir():
        checkpoint = flags.read_model(place / "elmo")
        config = checkpoint.config
        elmo |= {"model": checkpoint.origin, "dim": config.dim, "layers": config.n_layers}
        elmo["weights"] = _verified(checkpoint, verify)
    return {**report, "elmo": elmo}


def _describe_index(path: Path, verify: bool) -> dict[str, Any]:
    from elmore.senses import index as uses

    if verify:
        uses.verify(path)
    index = uses.Index.open(path)
    files, name = index.manifest["files"], index.manifest.get("model_name")
    return {
        "path": str(path),
        "words": len(index.words),
        "uses": len(index),
        "sources": len(index.sources),
        "made_with": ", ".join(name) if isinstance(name, list) else name,
        "tokenizer": index.manifest.get("tokenizer"),
        "bytes": sum(entry["size"] for entry in files.values()),
        "checksums": f"{len(files)} files compared" if verify else "not compared; use --verify",
    }


def _verified(checkpoint: Checkpoint, verify: bool) -> str:
    """Read every weight, if asked to; the readers refuse what is damaged or not finite."""
    if not verify:
        return "not checked; use --verify"
    return f"{sum(1 for _ in checkpoint.checked_weights())} checked"


def _describe(model: ModelPath, verify: bool) -> dict[str, Any]:
    from elmore.config import count_parameters
    from elmore.embedding.load import open_model
    from elmore.formats.detect import detect

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
        "weights": _verified(checkpoint, verify),
        "bytes": sum(file["bytes"] for file in files),
        "files": files,
        "certificate": notes.pop("certificate", None),
        "notes": {name: note for name, note in notes.items() if name != "languages"},
    }


def _languages(checkpoint: Checkpoint) -> str | None:
    """The languages that the model's own files name."""
    known = checkpoint.notes.get("languages", checkpoint.notes.get("language"))
    if isinstance(known, str):
        return known
    if isinstance(known, list) and known:
        return ", ".join(str(name) for name in known)
    return None


def _lexicons(checkpoint: Checkpoint) -> dict[str, int]:
    """The entries of the tables that text is looked up in."""
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
            continue  # a link or FIFO next to the model, which is not part of it
    return files


def _system() -> dict[str, Any]:
    from elmore.compute.native import native

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
                f"{'file':<20}{f['name']}: {f['bytes']:,} bytes, SHA-256 {f['sha256']}"
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

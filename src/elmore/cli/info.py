"""`elmore info`: describes a model, a trained task, an index or prepared text."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.base.io import sha256_stream
from elmore.base.messages import shown
from elmore.cli import options
from elmore.cli.console import Console, described
from elmore.cli.prepare import describe_prepared
from elmore.errors import FormatError

if TYPE_CHECKING:
    from elmore.embedding.load import ModelPath
    from elmore.formats.checkpoint import Checkpoint
    from elmore.formats.containers.sources import Source

_EXAMPLES = """\
  elmore info english
  elmore info runs/ner
  elmore info options.json weights.hdf5 --json
  elmore info my-model --verify
  elmore info uses/

Layers include layer 0, without context. Parameters are without the softmax; a model without a
softmax cannot predict words, which `score` needs. The precision is that of the stored weights.
"""

# A model's folder may contain anything else too; only these are hashed.
_MODEL_FILES = (
    *(".safetensors", ".hdf5", ".h5", ".pkl", ".th", ".pt", ".pth", ".index"),
    *(".json", ".txt", ".gz", ".dic", ".md", ".options_file", ".weight_file"),
)
# The parts of a TensorFlow checkpoint have no suffix of their own.
_SHARD = re.compile(r"\.data-\d{5}-of-\d{5}$")
# 100, 200, 500, 1,000, ...: the sizes of vocabularies whose coverage is shown.
_SIZES = tuple(k * 10**n for n in range(2, 8) for k in (1, 2, 5))
_N_SPECIALS = 3  # <S>, </S> and <UNK>


@options.verb(_EXAMPLES)
def info(
    *,
    path: tuple[str, ...] = options.argument("[MODEL|FOLDER]", nargs=-1),
    offline: bool = options.offline,
    verify: bool = options.flag(
        "Read every weight and file: NaN, infinity and wrong checksums are errors."
    ),
    console: Console,
) -> None:
    """MODEL is a name of `elmore models`, a path, or two files OPTIONS WEIGHTS; by default
    english.
    """
    report = _describe_any(options.model_path(path or ["english"]), verify)
    console.result(report, described(report))


def _describe_any(model: ModelPath, verify: bool) -> dict[str, Any]:
    """Describe what a path is: a trained task, an index, prepared text, a run, or a model."""
    from elmore.corpus.prepared import is_prepared
    from elmore.senses.index import is_index
    from elmore.tasks.folder import find_task

    if isinstance(model, tuple):
        return _describe(model, verify)
    path = Path(model)
    if is_index(path):
        return {"index": _describe_index(path, verify)}
    if is_prepared(path):
        return _describe_prepared(path, verify)
    # The order matters: a trained task contains a biLM, and a run contains either of them.
    if (trained := find_task(path)) is not None:
        return _describe_task(trained, verify)
    if not (path / "recipe.json").is_file() or (path / "config.json").is_file():
        return _describe(model, verify)
    # The best checkpoint exists once there was an evaluation.
    for saved in (path / "best", path / "checkpoint"):
        if saved.is_dir():
            return _describe(saved, verify)
    raise FormatError(
        f"'{shown(path, 140)}' is a run without a checkpoint yet; let it train a little longer"
    )


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


def _describe_prepared(path: Path, verify: bool) -> dict[str, Any]:
    from elmore.corpus.prepared import COUNTS, Prepared
    from elmore.corpus.words import read_counts

    prepared = Prepared.open(path, verify=verify)
    # Sorted by count, so the first n words are the vocabulary of size n.
    counts = [count for _, count in read_counts(prepared.folder / COUNTS)]
    covered = list(itertools.accumulate(counts))
    sizes = [n - _N_SPECIALS for n in _SIZES if n < len(counts) + _N_SPECIALS]
    coverage = {
        f"{n + _N_SPECIALS:,} words": f"{covered[n - 1] / prepared.n_tokens:.2%} of the tokens, "
        f"each at least {counts[n - 1]:,} times"
        for n in [*sizes, len(counts)]
        if n
    }
    return {**describe_prepared(prepared), "coverage": coverage}


def _describe_task(place: Path, verify: bool) -> dict[str, Any]:
    from elmore.tasks.folder import read_facts

    facts = read_facts(place)
    try:
        recipe, use = facts.recipe, facts.recipe["elmo"]
        places = ", ".join(name for name in ("input", "output") if use[name])
        report: dict[str, Any] = {
            "task": facts.task,
            "folder": str(place),
            "recipe": recipe["name"],
            "scores": {name: round(value, 2) for name, value in facts.scores.items()},
            "network": dict(recipe["model"]),
            "elmo": None,
        }
        elmo = {"digest": facts.elmo, "at": places, "mixes": use["layers"]}
    except (KeyError, TypeError, ValueError):  # edited or damaged
        raise FormatError(
            f"'{shown(place, 140)}' is not the folder of a trained task; restore it"
        ) from None
    if facts.elmo is None:  # a baseline without ELMo
        return report
    elmo["precision"] = facts.precision
    if (place / "elmo").is_dir():
        checkpoint = options.read_model(place / "elmo")
        config = checkpoint.config
        elmo |= {"model": checkpoint.origin, "dim": config.dim, "layers": config.n_layers}
        elmo["weights"] = _verified(checkpoint, verify)
    return {**report, "elmo": elmo}


def _verified(checkpoint: Checkpoint, verify: bool) -> str:
    """Read every weight, if asked to; the readers refuse what is damaged or not finite."""
    if not verify:
        return "not checked; use --verify"
    return f"{sum(1 for _ in checkpoint.checked_weights())} checked"


def _describe(model: ModelPath, verify: bool) -> dict[str, Any]:
    from elmore.config import count_parameters
    from elmore.embedding.load import open_model
    from elmore.formats.detect import detect

    checkpoint = options.read_model(model)
    config, notes = checkpoint.config, dict(checkpoint.notes)
    with open_model(model) as source:
        form = detect(source)
        files = list(_files(source))
    return {
        "model": checkpoint.origin,
        "format": form.NAME,
        "dim": config.dim,
        "layers": config.n_layers,
        "parameters": count_parameters(config),
        "languages": _languages(checkpoint),
        "alphabet": None if checkpoint.alphabet is None else checkpoint.alphabet.kind,
        **dataclasses.asdict(config),
        "tokenizer": checkpoint.tokenizer,
        "vocabulary": None if checkpoint.vocabulary is None else len(checkpoint.vocabulary),
        "softmax": checkpoint.softmax is not None,
        "warm_start": checkpoint.start_state is not None,
        "mixes": len(checkpoint.mixes),
        "precision": ", ".join(sorted(checkpoint.stored_types)),
        "weights": _verified(checkpoint, verify),
        "bytes": sum(file["bytes"] for file in files),
        "files": files,
        "certificate": notes.pop("certificate", None),
        "notes": {name: note for name, note in notes.items() if name != "languages"},
    }


def _languages(checkpoint: Checkpoint) -> str | None:
    """The languages that the model's own files or the catalogue name."""
    from elmore.published.catalog import INCLUDED, bundled_model

    for name, published in INCLUDED.items():
        if checkpoint.origin == str(bundled_model(name)):
            return published.language
    known = checkpoint.notes.get("languages", checkpoint.notes.get("language"))
    return ", ".join(map(str, known)) if isinstance(known, list) else known or None


def _files(source: Source) -> Iterator[dict[str, Any]]:
    for name in source.names():
        if not name.lower().endswith(_MODEL_FILES) and not _SHARD.search(name):
            continue
        # A link or FIFO next to the model is not part of it.
        with contextlib.suppress(FormatError), closing(source.open(name)) as stream:
            yield {"name": name, "bytes": source.size(name), "sha256": sha256_stream(stream)}

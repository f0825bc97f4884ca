"""`elmore models`, `info` and `convert`: which models there are, what is in them, and copies."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elmore.base.atomic import atomic_folder
from elmore.base.io import sha256_stream
from elmore.base.messages import shown
from elmore.cli import options
from elmore.cli.console import Console, described, fitted
from elmore.cli.pretrain import describe_prepared
from elmore.errors import ConfigError, ElmoreError, FormatError, ModelNotFound
from elmore.published import hub
from elmore.published.catalog import INCLUDED, Published, bundled_model, catalog, find_published
from elmore.report import aligned
from elmore.text.tokenizer import CONVENTIONS

if TYPE_CHECKING:
    from elmore.embedding.load import ModelPath
    from elmore.formats.checkpoint import Checkpoint
    from elmore.formats.containers.sources import Source

_MODELS = """\
  elmore models --language de
  elmore models --downloaded --json
  elmore models --prune small --prune medium

A name is used like a path: `elmore embed --model small text.txt` downloads the model the first
time. Downloads are in ELMORE_HOME (default: the cache folder of the system). Models that no
program can download are listed in docs/formats.md. A terminal shows the start of long lines; a pipe
gets all of them.
"""
_COLUMNS = ("name", "language", "dim", "MB", "files", "here", "licence", "trained on")
_ALL, _PARTS = "all", "parts"


@options.verb(_MODELS)
def models(
    *,
    language: str | None = options.option("Only models of this language (ISO 639).", "CODE"),
    downloaded: bool = options.flag("Only models that are on this machine."),
    prune: tuple[str, ...] = options.repeated(
        f"Delete the download of this model, and unfinished downloads; {_ALL} for all of them, "
        f"{_PARTS} for unfinished ones alone",
        "NAME",
    ),
    dry_run: bool = options.flag("With --prune: only list what would be deleted."),
    console: Console,
) -> None:
    if prune:
        if language or downloaded:
            raise ConfigError("--prune takes names; leave --language and --downloaded out")
        named = [find_published(name) for name in prune if name not in (_ALL, _PARTS)]
        gone = hub.prune(None if _ALL in prune else named, dry_run=dry_run)
        if gone or console.json:
            console.result([str(path) for path in gone], "\n".join(map(str, gone)))
        console.say(f"{'would delete' if dry_run else 'deleted'}: {len(gone)}")
        return
    if dry_run:
        raise ConfigError("--dry-run needs --prune; add --prune or leave it out")
    everything = catalog().values()
    chosen = [model for model in everything if language in (None, model.language)]
    if not chosen:
        known = ", ".join(sorted({model.language for model in everything}))
        raise ModelNotFound(f"there is no model for language {language!r}; use one of {known}")
    if downloaded:
        chosen = [model for model in chosen if _is_here(model)]
    console.result(
        [{**dataclasses.asdict(model), "on_disk": _is_here(model)} for model in chosen],
        fitted(aligned([_COLUMNS, *(_row(model) for model in chosen)])),
    )
    if not console.json:
        console.say(f"downloads: {hub.home()}")


def _is_here(model: Published) -> bool:
    return model.name in INCLUDED or hub.is_downloaded(model)


def _row(model: Published) -> tuple[str, ...]:
    dim, size = ("?" if n is None else str(n) for n in (model.dim, model.megabytes))
    here = "yes" if _is_here(model) else "no"
    facts = (model.form, here, model.licence, model.trained_on)
    return (model.name, model.language, dim, size, *facts)


_INFO = """\
  elmore info english
  elmore info runs/ner
  elmore info options.json weights.hdf5 --json
  elmore info uses/

Layers include layer 0, without context. Parameters are without the softmax; a model without a
softmax cannot predict words, which `score` needs. The precision is that of the stored weights.
"""

# A model's folder may contain anything else too; only these are hashed, and files of weights.
_MODEL_FILES = (".txt", ".dic", ".md", ".options_file", ".weight_file")
# 100, 200, 500, 1,000, ...: the sizes of vocabularies whose coverage is shown.
_SIZES = tuple(k * 10**n for n in range(2, 8) for k in (1, 2, 5))
_N_SPECIALS = 3  # <S>, </S> and <UNK>


@options.verb(_INFO)
def info(
    *,
    path: tuple[str, ...] = options.argument("[MODEL|FOLDER]", nargs=-1),
    offline: bool = options.offline,
    console: Console,
) -> None:
    """MODEL is a name of `elmore models`, a path, or two files OPTIONS WEIGHTS; by default
    english.
    """
    report = _describe_any(options.model_path(path or ["english"]))
    console.result(report, described(report))


def _describe_any(model: ModelPath) -> dict[str, Any]:
    """Describe what a path is: a trained task, an index, prepared text, a run, or a model."""
    from elmore.corpus.prepared import is_prepared
    from elmore.senses.files import is_index
    from elmore.tasks.folder import find_task

    if isinstance(model, tuple):
        return _describe(model)
    path = Path(model)
    if is_index(path):
        return {"index": _describe_index(path)}
    if is_prepared(path):
        return _describe_prepared(path)
    # The order matters: a trained task contains a biLM, and a run contains either of them.
    if (trained := find_task(path)) is not None:
        return _describe_task(trained)
    if not (path / "recipe.json").is_file() or (path / "config.json").is_file():
        return _describe(model)
    # The best checkpoint exists once there was an evaluation.
    for saved in (path / "best", path / "checkpoint"):
        if saved.is_dir():
            return _describe(saved)
    raise FormatError(
        f"'{shown(path, 140)}' is a run without a checkpoint yet; let it train a little longer"
    )


def _describe_index(path: Path) -> dict[str, Any]:
    from elmore.senses.index import Index

    index = Index.open(path)
    files, name = index.manifest["files"], index.manifest.get("model_name")
    return {
        "path": str(path),
        "words": len(index.words),
        "uses": len(index),
        "sources": len(index.sources),
        "made_with": ", ".join(name) if isinstance(name, list) else name,
        "tokenizer": index.manifest.get("tokenizer"),
        "bytes": sum(entry["size"] for entry in files.values()),
    }


def _describe_prepared(path: Path) -> dict[str, Any]:
    from elmore.corpus.prepared import COUNTS, Prepared
    from elmore.corpus.words import read_counts

    prepared = Prepared.open(path)
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


def _describe_task(place: Path) -> dict[str, Any]:
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
    return {**report, "elmo": elmo}


def _describe(model: ModelPath) -> dict[str, Any]:
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
        "bytes": sum(file["bytes"] for file in files),
        "files": files,
        "certificate": notes.pop("certificate", None),
        "notes": {name: note for name, note in notes.items() if name != "languages"},
    }


def _languages(checkpoint: Checkpoint) -> str | None:
    """The languages that the model's own files or the catalogue name."""
    for name in INCLUDED:
        if checkpoint.origin == str(bundled_model(name)):
            return catalog()[name].language
    known = checkpoint.notes.get("languages", checkpoint.notes.get("language"))
    return ", ".join(map(str, known)) if isinstance(known, list) else known or None


def _files(source: Source) -> Iterator[dict[str, Any]]:
    from elmore.formats.detect import SHARD, SUFFIXES

    for name in source.names:
        if not name.lower().endswith((*SUFFIXES, *_MODEL_FILES)) and not SHARD.search(name):
            continue
        # A link or FIFO next to the model is not part of it.
        with contextlib.suppress(FormatError), closing(source.open(name)) as stream:
            yield {"name": name, "bytes": source.size(name), "sha256": sha256_stream(stream)}


_CONVERT = """\
  elmore convert options.json weights.hdf5 -o my-model
  elmore convert my-model -o quarter/ --precision int8
  elmore convert model.ckpt-10 -o old/ --to allennlp
"""

# Largest difference that is accepted, relative to the largest value. float32 is copied bit by bit;
# float16 rounds each weight to 11 bits. int8 is compared with int8 computed from the original, so
# nothing may differ; the certificate says what int8 costs.
_TOLERANCE = {"float32": 1e-6, "float16": 0.05, "int8": 1e-6}


@options.verb(_CONVERT)
def convert(
    *,
    model: tuple[str, ...] = options.argument("MODEL", nargs=-1, required=True),
    offline: bool = options.offline,
    output: Path = options.output("Folder to create.", required=True),
    force: bool = options.force,
    to: str = options.choice(["folder", "allennlp"], "folder", "Format to write."),
    precision: Any = options.choice(
        tuple(_TOLERANCE), None, "Type of the stored weights; by default as they were."
    ),
    tokenizer: Any = options.choice(
        CONVENTIONS,
        None,
        f"Store how raw text is split: {', '.join(CONVENTIONS)}; by default as it was.",
        metavar="NAME",
    ),
    start: str = options.start,
    console: Console,
) -> None:
    """MODEL is a name of `elmore models`, a path, or two files OPTIONS WEIGHTS. The copy appears
    under its name only after it was verified.
    """
    from elmore.embedding.certificate import certified
    from elmore.embedding.engine import Engine
    from elmore.embedding.stateful import burn_in
    from elmore.formats import allennlp_hdf5, elmore_folder
    from elmore.formats.checkpoint import CERTIFICATE

    if to == "allennlp" and (precision not in (None, "float32") or start != "zeros"):
        raise ConfigError("AllenNLP's files store float32 and no start state; use --to folder")
    source = options.model_path(model)
    for path in map(Path, source if isinstance(source, tuple) else (source,)):
        # With --force the copy would replace the model.
        if path.exists() and output.resolve() in (path.resolve(), *path.resolve().parents):
            raise ConfigError(f"'{output}' is the model itself; choose another -o")
    checkpoint = options.read_model(source).with_tokenizer(tokenizer)
    if precision is None:
        precision = "float32" if to == "allennlp" else checkpoint.precision
    # --force deletes only folders that are models, never others that happen to have the name.
    looks_ours = elmore_folder.is_folder if to == "folder" else allennlp_hdf5.is_folder
    left_out = []
    with atomic_folder(output, overwrite=force, looks_ours=looks_ours) as temporary:
        if to == "allennlp":
            allennlp_hdf5.write(checkpoint, temporary)
            parts = {
                "mixes": bool(checkpoint.mixes),
                "start state": checkpoint.start_state is not None,
                # That nobody knows the tokenization is true of the copy too.
                "tokenizer": "tokenizer" not in checkpoint.notes,
                "notes": bool(checkpoint.notes.keys() - {"tokenizer"}),
            }
            # AllenNLP's files cannot store these, and the vectors of tokens do not need them.
            left_out = [name for name, there in parts.items() if there]
        else:
            if start == "warm":
                warm = checkpoint.start_state or burn_in(Engine(checkpoint))
                checkpoint = dataclasses.replace(checkpoint, start_state=warm)
            checkpoint = certified(checkpoint, precision)
            elmore_folder.write(checkpoint, temporary, precision=precision)
        difference = _verify(checkpoint, temporary, precision)
    verified = f"verified: vectors differ by {difference:.2g} at most"
    certificate = None if to == "allennlp" else checkpoint.notes.get(CERTIFICATE)
    if certificate is not None:
        cosine = ", ".join(f"{value:.5f}" for value in certificate["mean_cosine"])
        verified += f"; mean cosine to float32 by layer {cosine}"
    lost = f"; left out: {', '.join(left_out)}" if left_out else ""
    report = {"output": str(output), "format": to, "max_difference": difference}
    console.done(
        {**report, "left_out": left_out, "certificate": certificate},
        f"wrote '{output}' ({to}, {precision}); {verified}{lost}",
    )


def _verify(before: Checkpoint, written: Path, precision: str) -> float:
    """Embed a text with both models; returns the largest difference."""
    import numpy as np

    from elmore.elmo import Elmo
    from elmore.embedding.certificate import fixed_text
    from elmore.embedding.load import read_checkpoint

    text = fixed_text(before)
    # Without the C extension the default of the copy would be another one.
    computed: Literal["int8", "float32"] = "int8" if precision == "int8" else "float32"
    old = Elmo(before, precision=computed).layers(text, tokenized=True)
    new = Elmo(read_checkpoint(written), precision=computed).layers(text, tokenized=True)
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

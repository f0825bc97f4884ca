"""From a path to the files of a model, and to the module that reads their format."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast

from elmore.base.io import open_checked
from elmore.base.messages import shown
from elmore.errors import ConfigError, FormatError, ModelNotFound
from elmore.formats.bilm_options import find_options, find_vocabulary
from elmore.formats.checkpoint import Checkpoint
from elmore.formats.containers.sources import (
    HDF5_SUFFIXES,
    Source,
    files_source,
    folder_source,
    tar_source,
    zip_source,
)

# A name or path, or the files (options, weights[, vocabulary[, softmax]]).
ModelPath = str | Path | tuple[str | Path, ...]


class Format(Protocol):
    """What a module needs to be in `FORMATS`."""

    NAME: str

    def sniff(self, source: Source) -> bool:
        """Whether the file names look like this format."""

    def read(self, source: Source) -> Checkpoint:
        """Read a model."""


_PICKLES = (".th", ".pt", ".pth")
# A model has more than one such file, and a user may name any of them.
_NAMED_SUFFIXES = (*HDF5_SUFFIXES, *_PICKLES, ".json", ".index")
# Of a part of a TensorFlow checkpoint.
SHARD = re.compile(r"\.data-\d{5}-of-\d{5}")

# A name with such a suffix is a path; names of models may contain dots too.
SUFFIXES = (*_NAMED_SUFFIXES, ".zip", ".tar", ".gz", ".tgz", ".safetensors", ".pkl")

# Modules of this package, tried in this order: of HDF5 weights and a TensorFlow checkpoint in one
# folder, HDF5 is read. Each is imported when those before it do not fit, so that the usual model
# waits neither for h5py nor for anything else that it does not need.
FORMATS = ("elmore_folder", "manylangs_folder", "allennlp_hdf5", "tf1", "allennlp_archive")


def formats() -> Iterator[Format]:
    """The formats in the order in which they are tried."""
    for name in FORMATS:
        yield cast(Format, importlib.import_module(f"elmore.formats.{name}"))


def detect(source: Source) -> Format:
    """Find the format of a model's files.

    Raises:
        FormatError: no format fits; says what was found.
    """
    for form in formats():
        if form.sniff(source):
            return form
    # Names of an archive may be anything.
    found = shown(", ".join(source.names[:5]), 80) or "nothing"
    raise FormatError(
        f"'{source.name}' is not a known model (found {found}); expected config.json with "
        "model.safetensors, encoder.pkl or weights.th, or options.json with *.hdf5 or *.index"
    )


def open_path(model: ModelPath) -> Source | None:
    """Open the files of a model on this disk; None if a path does not exist."""
    if isinstance(model, tuple):
        return _open_named_files(model)
    path = Path(model)
    # One of several files of a model, or the prefix of a checkpoint.
    is_file = path.is_file() and path.suffix in _NAMED_SUFFIXES
    if is_file or (not path.is_dir() and _prefix(path) is not None):
        return _open_named_file(path)
    # A dangling link is an error to report, not a name to look up.
    return open_source(path) if path.exists() or path.is_symlink() else None


def open_source(path: Path, *, follow_links: bool = False) -> Source:
    """Open a folder, zip or tar as a source.

    Raises:
        FormatError: missing, none of the three, or broken.
    """
    path = Path(path)
    if path.is_dir():
        return folder_source(path, follow_links=follow_links)
    with open_checked(path, what="model") as stream:
        # By its first bytes: people rename archives. The second is an empty zip.
        is_zip = stream.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
    return (zip_source if is_zip else tar_source)(open_checked(path, what="model"), str(path))


# Models that a user names file by file ------------------------------------------------------------


def _open_named_files(files: tuple[str | Path, ...]) -> Source:
    """Open (options, weights[, vocabulary[, softmax]]); weights may be a TensorFlow checkpoint."""
    if not 2 <= len(files) <= 4:
        raise ConfigError(
            f"a model of {len(files)} files; pass (options, weights), (options, weights, "
            "vocabulary) or (options, weights, vocabulary, softmax)"
        )
    options, weights, *more = (Path(file) for file in files)
    # The order is easily mixed up.
    if options.suffix in HDF5_SUFFIXES and weights.suffix == ".json":
        raise ConfigError(
            f"'{options}' comes first but is not an options file; pass (options, weights)"
        )
    # A vocabulary may be compressed or not: its first bytes say it.
    named = {"softmax.hdf5" if path.suffix in HDF5_SUFFIXES else "vocab.txt": path for path in more}
    if len(named) < len(more):
        raise ConfigError("two vocabularies or two softmax files; pass one of each")
    return _open_bilm({"options.json": options, **named}, weights)


def _open_named_file(path: Path) -> Source:
    """Open a model of which one file was named; the others are in the same folder."""
    prefix = _prefix(path)
    if prefix is not None:
        name = find_options(_names(prefix.parent))
        return _open_bilm({"options.json": prefix.with_name(name)} if name else {}, prefix)
    if path.suffix in _PICKLES:
        config = path.with_name("config.json")
        named = {"weights.th": path} | ({"config.json": config} if config.is_file() else {})
        return files_source(named)
    options = path.with_name(path.name.replace("weights", "options")).with_suffix(".json")
    weights = path
    if path.suffix == ".json":
        weights = path.with_name(path.name.replace("options", "weights")).with_suffix(".hdf5")
    elif not options.is_file():
        options = path.with_name("options.json")
    # Not guessed from other JSON files: with wrong options a model may load and give wrong
    # vectors.
    if not (options.is_file() and weights.is_file()):
        raise ModelNotFound(
            f"'{path}' is one of two files and the other is missing; pass (options, weights)"
        )
    return _open_bilm({"options.json": options}, weights)


def _open_bilm(named: dict[str, Path], weights: Path) -> Source:
    """Open named files and weights, with the files beside the weights that belong to them.

    A softmax belongs to weights of the same name (`x_softmax.hdf5`, `x_weights.hdf5`), or to
    weights that are alone with it in their folder. Links are ignored: they may lead anywhere.
    """
    names = _names(weights.parent)
    plain = [name for name in names if not weights.with_name(name).is_symlink()]
    found: dict[str, Path] = {}
    prefix = _prefix(weights)
    if prefix is not None:
        shards = (name for name in names if SHARD.sub("", name) == prefix.name)
        found = {name: prefix.with_name(name) for name in (f"{prefix.name}.index", *shards)}
    else:
        found["weights.hdf5"] = weights
        arrays = [name for name in plain if name.endswith(HDF5_SUFFIXES)]
        outputs = [name for name in arrays if "softmax" in name]
        twin = weights.name.replace("weights", "softmax")
        if twin in outputs or (len(outputs) == 1 and len(arrays) == 2):
            found["softmax.hdf5"] = weights.with_name(twin if twin in outputs else outputs[0])
    vocabulary = find_vocabulary(plain)
    if vocabulary is not None:
        found["vocab.txt"] = weights.with_name(vocabulary)
    elif "vocab.txt" not in named:
        found.pop("softmax.hdf5", None)  # of no use without its words
    return files_source({**named, **found, **named})


def _prefix(path: Path) -> Path | None:
    """The prefix of a TensorFlow checkpoint, given by itself or by one of its files."""
    # People name the index, a shard, or what TensorFlow's Saver takes: the prefix of both.
    name = SHARD.sub("", path.name)
    prefix = path.with_name(name.removesuffix(".index")) if name else path
    return prefix if prefix.with_name(f"{prefix.name}.index").is_file() else None


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []

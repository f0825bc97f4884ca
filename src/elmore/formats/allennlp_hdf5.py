"""`options.json` and `weights.hdf5`: the files of bilm-tf, AllenNLP, and NLPL's zips."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_folder, write_error
from elmore.base.json import read_json
from elmore.errors import ConfigError, FormatError
from elmore.formats.bilm_options import find_options, options_from_config
from elmore.formats.bilm_weights import LSTM, bilm_arrays, canonical_name, read_bilm
from elmore.formats.checkpoint import Checkpoint
from elmore.formats.containers.hdf5_files import open_hdf5
from elmore.formats.containers.sources import HDF5_SUFFIXES, Source
from elmore.text.characters import ByteAlphabet

NAME = "allennlp"


def sniff(source: Source) -> bool:
    """Whether there are options and HDF5 weights."""
    return find_options(source.names) is not None and _find_weights(source) is not None


def read(source: Source) -> Checkpoint:
    """Read options, weights and, if present, vocabulary and softmax."""
    options_name = find_options(source.names) or "options.json"
    weights_name = _find_weights(source) or "weights.hdf5"
    options = source.read_json(options_name)
    arrays = open_hdf5(source.open(weights_name), what=weights_name)
    name = next((n for n in source.names if "softmax" in n and n.endswith(".hdf5")), None)
    softmax = None if name is None else open_hdf5(source.open(name), what=name)
    arrays = arrays.renamed({canonical_name(name): name for name in arrays.shapes})
    return read_bilm(source, arrays, options, options_name, softmax=softmax)


def write(checkpoint: Checkpoint, path: Path, *, overwrite: bool = False) -> None:
    """Write a folder with options.json, weights.hdf5 and, if known, vocabulary and softmax.

    Raises:
        ConfigError: the model has a part that these files cannot store.
    """
    config = checkpoint.config
    # Before anything is written: AllenNLP would load such files and compute something else.
    _refuse_unwritable(checkpoint)
    with atomic_folder(path, overwrite=overwrite, looks_ours=is_folder) as folder:
        _write_datasets(folder, path, "weights.hdf5", bilm_arrays(checkpoint))
        if checkpoint.softmax is not None:
            parts = {"softmax/W": checkpoint.softmax.floats(), "softmax/b": checkpoint.softmax.bias}
            _write_datasets(folder, path, "softmax.hdf5", parts.items())
        if checkpoint.vocabulary is not None:
            (folder / "vocab.txt").write_bytes(checkpoint.vocabulary.to_bytes())
        options = json.dumps(options_from_config(config), indent=2) + "\n"
        (folder / "options.json").write_text(options, encoding="utf-8", newline="\n")


def _write_datasets(
    folder: Path, path: Path, name: str, datasets: Iterable[tuple[str, NDArray[np.float32]]]
) -> None:
    """Write a file into a temporary folder; `path` is its final name."""
    try:
        # Through a stream: after a failed write, the library cannot close a file of its own.
        with (folder / name).open("w+b") as stream, h5py.File(stream, "w") as file:
            for key, array in datasets:
                file.create_dataset(key, data=array)
    except OSError as error:
        raise write_error(error, path / name) from error


def _find_weights(source: Source) -> str | None:
    names = source.names
    for usual in ("weights.hdf5", "model.hdf5"):
        if usual in names:
            return usual
    # Softmaxes and token vectors are HDF5 files too.
    found = sorted(
        name
        for name in names
        if name.endswith(HDF5_SUFFIXES) and "softmax" not in name and "token" not in name
    )
    if len(found) < 2:
        return found[0] if found else None
    # People keep their vectors beside the model, so the contents decide.
    models = [name for name in found if _has_lstm(source, name)]
    if len(models) > 1:
        raise FormatError(
            f"'{source.name}' has the weights of {len(models)} models ({', '.join(models[:3])}); "
            "pass (options, weights)"
        )
    return models[0] if models else found[0]


def _has_lstm(source: Source, name: str) -> bool:
    try:
        with open_hdf5(source.open(name), what=name) as arrays:
            return any(found.startswith(LSTM) for found in arrays.shapes)
    except FormatError:
        return False  # a broken file of another program is no reason to refuse the model


def _refuse_unwritable(checkpoint: Checkpoint) -> None:
    tokens = checkpoint.config.tokens
    reason = None
    if checkpoint.config.lstm.mixed:
        reason = "has layers that read both directions"
    elif tokens.n_words and tokens.n_characters:
        reason = "reads words and characters together"
    elif tokens.n_words and tokens.projected:
        reason = "projects its word vectors"
    elif tokens.n_characters and not isinstance(checkpoint.alphabet, ByteAlphabet):
        reason = "has its own alphabet instead of bytes"
    if reason is not None:
        raise ConfigError(
            f"this model {reason}, which AllenNLP's files cannot store; use --to folder"
        )


def is_folder(folder: Path) -> bool:
    """Whether a folder has what `write` writes and nothing else, so that it may be replaced."""
    needed = {"options.json", "weights.hdf5"}
    found = {entry.name for entry in folder.iterdir()}
    if not needed <= found or found - needed - {"softmax.hdf5", "vocab.txt"}:
        return False
    try:
        return "lstm" in read_json(folder / "options.json")
    except FormatError:
        return False

"""`options.json` and `weights.hdf5`: the files of bilm-tf, AllenNLP, and NLPL's zips."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import atomic_folder, write_error
from elmore.base.json import read_json
from elmore.config import BiLmConfig
from elmore.errors import ConfigError, FormatError
from elmore.formats.bilm_options import (
    config_from_options,
    find_options,
    options_from_config,
    read_languages,
    read_options,
    read_vocabulary,
)
from elmore.formats.bilm_weights import (
    by_dataset,
    check_arrays,
    dump_names,
    linked_weights,
    links,
    read_softmax,
)
from elmore.formats.checkpoint import Checkpoint, Softmax
from elmore.formats.containers.finite import check_finite
from elmore.formats.containers.hdf5_files import open_hdf5
from elmore.formats.containers.sources import HDF5_SUFFIXES, Source
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary

__all__ = ["NAME", "is_folder", "read", "sniff", "stored_types", "write"]

NAME = "allennlp"
# How the datasets of an LSTM start, in models of two directions and of one.
_LSTM = ("RNN_", "rnn/")

Array = NDArray[np.float32]
Shapes = Mapping[str, tuple[int, ...]]


def sniff(source: Source) -> bool:
    """Whether there are options and HDF5 weights."""
    return find_options(source) is not None and _find_weights(source) is not None


def read(source: Source) -> Checkpoint:
    """Read options, weights and, if present, vocabulary and softmax.

    Names and shapes are compared with the options before any array is read. The arrays are read
    on request.
    """
    options_name, weights_name = find_options(source), _find_weights(source)
    if options_name is None or weights_name is None:
        missing = "options.json" if options_name is None else "*.hdf5 weights"
        raise FormatError(
            f"'{source.name}' has no {missing}; pass (options, weights) or download it again"
        )
    options = read_options(source, options_name)
    vocabulary = read_vocabulary(source)
    with ExitStack() as stack:
        stream = stack.enter_context(closing(source.open(weights_name)))
        view = stack.enter_context(open_hdf5(stream, what=weights_name))
        shapes = {name: info.shape for name, info in view.names().items()}
        _refuse_other_files(shapes, weights_name)
        config = config_from_options(
            options,
            # The options do not say it; bilm-tf writes `rnn/` for models of one direction.
            bidirectional=not any(name.startswith("rnn/") for name in shapes),
            n_words=_rows(shapes, "embedding"),
            what=options_name,
        )
        table = links(config, dump_names(config, shapes))
        check_arrays(table, shapes, options_name, weights_name)
        weights = linked_weights(config, table, view.read)
        # The file stays open as long as a weight may be requested.
        weakref.finalize(weights, stack.pop_all().close)
    softmax = _read_softmax(source, config, vocabulary)
    languages = read_languages(source)
    # Byte models run without a vocabulary, and one in the folder may belong to something else.
    needs_words = bool(config.tokens.n_words) or softmax is not None
    return Checkpoint(
        config=config,
        weights=weights,
        alphabet=ByteAlphabet(config.tokens.max_chars) if config.tokens.n_characters else None,
        vocabulary=vocabulary if needs_words else None,
        softmax=softmax,
        notes={"languages": languages} if languages else {},
        origin=source.name,
    )


def stored_types(source: Source) -> set[str]:
    """The types in which the weights are stored."""
    name = _find_weights(source) or "weights.hdf5"
    with closing(source.open(name)) as stream, open_hdf5(stream, what=name) as view:
        return {str(found.dtype) for found in view.names().values()}


def write(checkpoint: Checkpoint, path: Path, *, overwrite: bool = False) -> None:
    """Write a folder with options.json, weights.hdf5 and, if known, vocabulary and softmax.

    Raises:
        ConfigError: the model has a part that these files cannot store.
    """
    config = checkpoint.config
    # Before anything is written: AllenNLP would load such files and compute something else.
    _refuse_unwritable(checkpoint)
    with atomic_folder(path, overwrite=overwrite, looks_ours=is_folder) as folder:
        _write_datasets(folder, path, "weights.hdf5", _weight_datasets(checkpoint))
        if checkpoint.softmax is not None:
            parts = {"softmax/W": checkpoint.softmax.weight, "softmax/b": checkpoint.softmax.bias}
            _write_datasets(folder, path, "softmax.hdf5", parts.items())
        if checkpoint.vocabulary is not None:
            (folder / "vocab.txt").write_bytes(checkpoint.vocabulary.to_bytes())
        options = json.dumps(options_from_config(config), indent=2) + "\n"
        (folder / "options.json").write_text(options, encoding="utf-8", newline="\n")


def _weight_datasets(checkpoint: Checkpoint) -> Iterator[tuple[str, Array]]:
    config = checkpoint.config
    for name, parts in by_dataset(links(config, dump_names(config))).items():
        array = np.empty(parts[0].shape, np.float32)
        for link in parts:
            weight = checkpoint.weights[link.weight]
            check_finite(weight, what="this model", name=link.weight)
            array[link.dataset_rows] = link.back(weight[link.weight_rows])
        yield name, array


def _write_datasets(
    folder: Path, path: Path, name: str, datasets: Iterable[tuple[str, Array]]
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
    names = source.names()
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
        with closing(source.open(name)) as stream, open_hdf5(stream, what=name) as view:
            return any(found.startswith(_LSTM) for found in view.names())
    except FormatError:
        return False  # a broken file of another program is no reason to refuse the model


def _read_softmax(
    source: Source, config: BiLmConfig, vocabulary: Vocabulary | None
) -> Softmax | None:
    """Read `softmax/W` and `softmax/b` from a file `*softmax*.hdf5` of the model."""
    name = next((n for n in source.names() if "softmax" in n and n.endswith(".hdf5")), None)
    if name is None:
        return None
    with closing(source.open(name)) as stream, open_hdf5(stream, what=name) as view:
        shapes = {key: info.shape for key, info in view.names().items()}
        words = len(vocabulary) if vocabulary is not None else _rows(shapes, "softmax/b")
        return read_softmax(shapes, view.read, (words, config.lstm.projection_dim), name)


def _rows(shapes: Shapes, name: str) -> int:
    """Number of rows of a dataset; 0 if it is missing or a single number."""
    return (shapes.get(name) or (0,))[0]


def _refuse_other_files(shapes: Shapes, what: str) -> None:
    """Recognize files that people mistake for weights."""
    if any(name.startswith(_LSTM) for name in shapes):
        return
    if any(name.startswith("softmax") for name in shapes):
        raise FormatError(
            f"'{what}' is a softmax, not weights; pass the *_weights.hdf5 file of the model"
        )
    if set(shapes) == {"embedding"}:
        raise FormatError(f"'{what}' has token vectors, not weights; pass the *_weights.hdf5 file")
    if "sentence_to_index" in shapes or shapes.keys() & {"0", "1"}:
        raise FormatError(f"'{what}' has vectors of sentences, not weights; pass the weights")
    raise FormatError(
        f"'{what}' has no LSTM (no dataset RNN_0/...); pass the *_weights.hdf5 file of the model"
    )


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
    elif checkpoint.softmax is not None and checkpoint.softmax.cutoffs:
        reason = "has an adaptive softmax"
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

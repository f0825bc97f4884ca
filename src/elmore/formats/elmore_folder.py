"""elmore's own model folder: config.json, model.safetensors, vocab.txt, manifest.json.

The manifest is written last and has the size and SHA-256 of every other file. A folder without it
is not complete.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from elmore._version import __version__
from elmore.base.atomic import atomic_folder
from elmore.base.json import from_json
from elmore.base.manifest import FolderFormat, check_size, check_sum, file_entries
from elmore.base.messages import shown
from elmore.compute.matrix import STEPS, Stored, dequantize
from elmore.config import BiLmConfig, Precision, weight_shapes
from elmore.errors import ConfigError, FormatError
from elmore.formats.bilm_options import make_alphabet, read_dictionary
from elmore.formats.checkpoint import (
    Checkpoint,
    LazyWeights,
    Mix,
    Softmax,
    StartState,
    Whitening,
    as_precision,
    is_matrix,
)
from elmore.formats.containers.arrays import FLOATS, Arrays, check_finite
from elmore.formats.containers.safetensors_files import read_safetensors, write_safetensors
from elmore.formats.containers.sources import Source
from elmore.limits import LIMITS
from elmore.text.characters import Alphabet, ByteAlphabet, DictionaryAlphabet
from elmore.text.tokenizer import Convention
from elmore.text.vocabulary import USUAL, Specials, Vocabulary

NAME = "folder"

_AGAIN = "copy the folder again"
_FORMAT = FolderFormat(name="elmore", version=1, label="an elmore folder", fix=_AGAIN)
_SCALES = ".scales"
_CONFIG, _MODEL, _MANIFEST = "config.json", "model.safetensors", "manifest.json"
_CHARACTERS, _VOCABULARY = "characters.dic", "vocab.txt"
# Larger models are not hashed when they are loaded: that would take more than a second or two.
_HASHED_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class _AlphabetJson:
    """What config.json says about the alphabet."""

    kind: Literal["bytes", "dictionary"]
    max_chars: Annotated[int, Meta(ge=LIMITS.min_chars, le=LIMITS.max_chars)]


@dataclass(frozen=True, kw_only=True)
class _ConfigJson:
    """What config.json says, besides the format and version."""

    config: BiLmConfig
    alphabet: _AlphabetJson | None = None
    vocabulary: Specials = USUAL
    tokenizer: Convention
    precision: Precision = "float32"
    mixes: tuple[Mix, ...] = ()
    notes: dict[str, Any]


def sniff(source: Source) -> bool:
    """Whether there are a config and safetensors."""
    return {_CONFIG, _MODEL} <= set(source.names)


def is_folder(path: Path) -> bool:
    """Whether a folder is a model of ours and holds nothing else, so that it may be replaced."""
    return _FORMAT.owns(path, _MANIFEST)


def read(source: Source) -> Checkpoint:
    """Read a model folder; files are compared with the manifest, above 1 GiB only their sizes."""
    manifest = _check_manifest(source)
    facts = _read_config(source)
    config = facts.config
    # No weight is read before all shapes fit the config.
    view = read_safetensors(source.open(_MODEL), what=_MODEL)
    wanted = weight_shapes(config)
    for name, shape in wanted.items():
        _check_weight(view, name, shape)
    for mix in facts.mixes:
        if len(mix.weights) != config.n_layers:
            raise FormatError(
                f"'{_CONFIG}': a mix has {len(mix.weights)} weights, the model {config.n_layers} "
                "layers; correct it"
            )
    vocabulary = None
    if _VOCABULARY in manifest:
        with closing(source.open(_VOCABULARY)) as stream:
            vocabulary = Vocabulary.from_stream(stream, what=_VOCABULARY, specials=facts.vocabulary)
    numbers = {name: partial(_stored, view, name) for name in wanted}
    layers, dim = (len(config.directions), config.lstm.n_layers), config.lstm.projection_dim
    start = _read_pair(
        view, {"start.hidden": (*layers, dim), "start.cell": (*layers, config.lstm.dim)}
    )
    whitening = _read_pair(view, {"sif.mean": (dim,), "sif.matrix": (dim, dim)})
    return Checkpoint(
        config=config,
        weights=LazyWeights({name: partial(_dequantized, give) for name, give in numbers.items()}),
        alphabet=_read_alphabet(source, facts.alphabet),
        vocabulary=vocabulary,
        softmax=_read_softmax(view, config, vocabulary),
        mixes=facts.mixes,
        start_state=StartState(*start) if start else None,
        whitening=Whitening(*whitening) if whitening else None,
        tokenizer=facts.tokenizer,
        notes=facts.notes,
        origin=source.name,
        precision=facts.precision,
        stored={name: give for name, give in numbers.items() if view.types[name] != "float32"},
        stored_types=frozenset(view.types.values()),
    )


def write(
    checkpoint: Checkpoint, path: Path, *, overwrite: bool = False, precision: Precision = "float32"
) -> None:
    """Write a model folder; it appears under its name only when it is complete."""
    parts = {name: checkpoint.numbers(name, precision) for name in weight_shapes(checkpoint.config)}
    if checkpoint.softmax is not None:
        weight, bias = checkpoint.softmax.stored, checkpoint.softmax.bias
        if weight.scales is None or precision != "int8":
            weight = as_precision("softmax.weight", dequantize(weight), precision)
        parts |= {
            "softmax.weight": weight,
            "softmax.bias": as_precision("softmax.bias", bias, precision),
        }
    tensors: dict[str, NDArray[Any]] = {}
    for name, (values, row_scales) in parts.items():
        check_finite(values, what="this model", name=name)  # we could not read it again
        tensors[name] = values
        if row_scales is not None:
            tensors[name + _SCALES] = row_scales
    if checkpoint.start_state is not None:
        tensors["start.hidden"] = checkpoint.start_state.hidden
        tensors["start.cell"] = checkpoint.start_state.cell
    if checkpoint.whitening is not None:
        tensors["sif.mean"], tensors["sif.matrix"] = checkpoint.whitening
    with atomic_folder(path, overwrite=overwrite, looks_ours=is_folder) as folder:
        write_safetensors(folder / _MODEL, tensors, {"format": _FORMAT.name})
        (folder / _CONFIG).write_text(
            _config_text(checkpoint, precision), encoding="utf-8", newline="\n"
        )
        _write_lexicons(folder, checkpoint.alphabet, checkpoint.vocabulary)
        # Last: without its manifest an unfinished folder is refused.
        text = json.dumps({**_FORMAT.head(), "files": file_entries(folder)}, indent=2)
        (folder / _MANIFEST).write_text(text + "\n", encoding="utf-8", newline="\n")


def _write_lexicons(folder: Path, alphabet: Alphabet | None, vocabulary: Vocabulary | None) -> None:
    """Write characters and words; one that does not fit on a line of text is a `ConfigError`."""
    if isinstance(alphabet, DictionaryAlphabet):
        for symbol in alphabet.symbols:
            if not symbol or "\n" in symbol or symbol.endswith("\r"):
                raise ConfigError(f"the character {symbol!r} cannot be stored; leave it out")
        lines = "".join(f"{symbol}\t{k}\n" for k, symbol in enumerate(alphabet.symbols))
        (folder / _CHARACTERS).write_bytes(lines.encode("utf-8"))
    if vocabulary is not None:
        for word in vocabulary:
            # The reader strips these, so the word would come back as another one.
            if not word or "\n" in word or word != word.strip(" \t\r"):
                raise ConfigError(f"the word {word!r} cannot be stored; leave it out")
        (folder / _VOCABULARY).write_bytes(vocabulary.to_bytes())


def _read_alphabet(source: Source, facts: _AlphabetJson | None) -> Alphabet | None:
    if facts is None:
        return None
    if facts.kind == ByteAlphabet.kind:
        return ByteAlphabet(facts.max_chars)
    symbols = read_dictionary(source, _CHARACTERS)
    return make_alphabet(symbols, facts.max_chars, _CHARACTERS)


def _config_text(checkpoint: Checkpoint, precision: Precision) -> str:
    alphabet, vocabulary = checkpoint.alphabet, checkpoint.vocabulary
    data = {
        **_FORMAT.head(),
        "elmore": __version__,
        "config": dataclasses.asdict(checkpoint.config),
        "alphabet": alphabet and {"kind": alphabet.kind, "max_chars": alphabet.max_chars},
        **({"vocabulary": asdict(vocabulary.specials)} if vocabulary else {}),
        "tokenizer": checkpoint.tokenizer,
        "precision": precision,
        "mixes": [asdict(mix) for mix in checkpoint.mixes],
        "notes": dict(checkpoint.notes),
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _check_manifest(source: Source) -> set[str]:
    """Compare the files with the manifest; return their names."""
    if _MANIFEST not in source.names:
        raise FormatError(
            f"'{source.name}' has no {_MANIFEST}, so it is not complete; copy or convert it again"
        )
    manifest = source.read_json(_MANIFEST)
    _FORMAT.check(manifest, what=_MANIFEST)
    files = from_json(
        dict[str, Any], manifest.get("files"), what=_MANIFEST, key="files", error=FormatError
    )
    if not {_CONFIG, _MODEL} <= files.keys():
        raise FormatError(f"'{source.name}/{_MANIFEST}' does not list the model; copy it again")
    # A lexicon that was added later would change the vectors without an error.
    for name in (_VOCABULARY, _CHARACTERS):
        if name in source.names and name not in files:
            raise FormatError(
                f"'{source.name}/{name}' is not in the manifest; remove it or convert again"
            )
    total = 0
    for name, entry in files.items():
        if name not in source.names:
            raise FormatError(f"'{source.name}' has no {shown(name)}; copy the folder again")
        expected = entry.get("size") if isinstance(entry, dict) else None
        check_size(source.size(name), expected, what=f"{source.name}/{name}", fix=_AGAIN)
        total += source.size(name)
    # Sizes were compared above, whatever the model's size: that finds a copy that broke off.
    if total <= _HASHED_BYTES:
        for name, entry in files.items():
            with closing(source.open(name)) as stream:
                what = f"{source.name}/{name}"
                check_sum(stream, entry.get("sha256"), what=what, fix=_AGAIN)
    return set(files)


def _read_config(source: Source) -> _ConfigJson:
    data = source.read_json(_CONFIG)
    _FORMAT.check(data, what=_CONFIG)
    return from_json(_ConfigJson, data, what=_CONFIG, error=FormatError, fix=_AGAIN, extra=True)


def _read_softmax(
    view: Arrays, config: BiLmConfig, vocabulary: Vocabulary | None
) -> Softmax | None:
    if "softmax.weight" not in view.shapes:
        return None
    rows = len(vocabulary or ())
    _check_weight(view, "softmax.weight", (rows, config.lstm.projection_dim))
    _check_tensor(view, "softmax.bias", (rows,))
    # As it is stored and mapped: most users never ask for the largest matrix of a model.
    weight, scales = _stored(view, "softmax.weight")
    return Softmax(weight, np.array(view.read("softmax.bias"), np.float32), scales)


def _read_pair(view: Arrays, wanted: Mapping[str, tuple[int, ...]]) -> list[NDArray[np.float32]]:
    """Two arrays that belong together; nothing if the first is not there."""
    if next(iter(wanted)) not in view.shapes:
        return []
    for name, shape in wanted.items():
        _check_tensor(view, name, shape)
    return [np.array(view.read(name), np.float32) for name in wanted]


def _check_weight(view: Arrays, name: str, shape: tuple[int, ...]) -> None:
    """Compare a weight with the config; the large matrices may be int8 with a scale per row."""
    if view.types.get(name) != "int8" or not is_matrix(name):
        _check_tensor(view, name, shape)
        return
    _check_tensor(view, name, shape, "int8")
    _check_tensor(view, name + _SCALES, shape[:1])


def _check_tensor(
    view: Arrays, name: str, shape: tuple[int, ...], dtype: str | None = None
) -> None:
    """Compare a tensor with the config; it has any type of floats, unless `dtype` says another."""
    types = FLOATS if dtype is None else (dtype,)
    if view.shapes.get(name) != shape or view.types[name] not in types:
        found = "is missing" if name not in view.shapes else f"has shape {view.shapes[name]}"
        raise FormatError(
            f"'{_MODEL}': {name} {found} and type {view.types.get(name)}, {_CONFIG} needs {shape} "
            f"of {dtype or 'floats'}; {_AGAIN}"
        )


def _stored(view: Arrays, name: str) -> Stored:
    values = view.read(name)
    if values.dtype != np.int8:
        return Stored(values)
    scales = np.array(view.read(name + _SCALES), np.float32)
    # Scales are symmetric, so -128 never occurs.
    if values.min(initial=0) < -STEPS or scales.min(initial=0) < 0:
        raise FormatError(f"'{_MODEL}': {name} is not a valid int8 matrix; copy the folder again")
    return Stored(values, scales)


def _dequantized(give: Callable[[], Stored]) -> NDArray[np.float32]:
    return dequantize(give())

"""ELMoForManyLangs folders and zips: config.json, char.dic, word.dic and two pickles.

`config.json` names the file with the architecture by a path of the machine that trained the model.
Only its last part is used, in the folder or in `PUBLISHED`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmore.base.json import read_json
from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig
from elmore.errors import FormatError
from elmore.formats.bilm_options import (
    make_alphabet,
    read_dictionary,
    read_languages,
    read_lstm,
    read_section,
    read_value,
)
from elmore.formats.bilm_weights import Layout, cell_names, read_weights
from elmore.formats.checkpoint import Checkpoint
from elmore.formats.containers.arrays import Arrays
from elmore.formats.containers.sources import Source
from elmore.formats.containers.torch_files import read_state_dict
from elmore.text.characters import DictionaryAlphabet
from elmore.text.vocabulary import Specials, Vocabulary

NAME = "manylangs"

Array = NDArray[np.float32]
_TOKENS, _ENCODER, _CONFIG = "token_embedder.pkl", "encoder.pkl", "config.json"
_CHARACTERS, _WORDS = "char.dic", "word.dic"
# Two files with one table: names of the tensors after the name of their file.
_NAMES = {
    r"tokens\.characters": f"{_TOKENS}/char_emb_layer.embedding.weight",
    r"tokens\.words": f"{_TOKENS}/word_emb_layer.embedding.weight",
    r"tokens\.convolutions\.(.*)": rf"{_TOKENS}/convolutions.\1",
    r"tokens\.highways\.(.*)": rf"{_TOKENS}/highways._layers.\1",
    r"tokens\.projection\.(.*)": rf"{_TOKENS}/projection.\1",
}
_LSTM_NAMES = cell_names(rf"{_ENCODER}/\1_layer_\2")
# The `lstm` encoder is torch's own nn.LSTM.
_MIXED_NAMES = {r"projection\.(.*)": rf"{_ENCODER}/projection.\1"} | {
    rf"{direction}_layers\.(\d+)\.{ours}": rf"{_ENCODER}/encoder.{theirs}_l\1{end}"
    for direction, end in (("forward", ""), ("backward", "_reverse"))
    for ours, theirs in (
        ("input_weight", "weight_ih"),
        ("state_weight", "weight_hh"),
        ("bias", "bias"),
    )
}

# The architecture of the published models, whose config.json names it by one of these, but whose
# folders mostly lack it.
PUBLISHED = ("cnn_50_100_512_4096_sample.json", "cnn_0_100_512_4096_sample.json")
_SAMPLE = Path(__file__).parents[1] / "data" / PUBLISHED[0]


def sniff(source: Source) -> bool:
    """Whether the two pickles are there."""
    return {_TOKENS, _ENCODER} <= set(source.names)


def read(source: Source) -> Checkpoint:
    """Read a model; its tensors are read on request."""
    architecture, what = _read_architecture(source)
    section = read_section(architecture, "token_embedder", what)
    kind = read_value(Literal["cnn", "lstm"], section.get("name"), "token_embedder.name", what)
    characters = read_dictionary(source, _CHARACTERS) if section.get("char_dim") else []
    words = read_dictionary(source, _WORDS) if section.get("word_dim") else []
    if characters and kind == "lstm":
        raise FormatError(
            f"'{what}' has a token layer `lstm` over characters, which ELMoForManyLangs itself "
            "cannot run; train it with `cnn`"
        )
    given = {
        "n_characters": len(characters),
        "char_dim": section.get("char_dim") if characters else 0,
        "n_words": len(words),
        "word_dim": section.get("word_dim", 0),
        "projected": True,
        # Only the CNN cuts words after so many characters.
        "max_chars": section.get("max_chars") if kind == "cnn" else 50,
    }
    # Filters and highways belong to characters.
    data = {**section, **given} if characters else given
    tokens: TokenEncoderConfig = read_value(TokenEncoderConfig, data, "token_embedder", what)
    config = BiLmConfig(tokens=tokens, lstm=_read_encoder(architecture, what))
    alphabet = vocabulary = None
    if words:
        # With a CNN the original cuts long words before it looks them up.
        longest = tokens.max_chars - 2 if kind == "cnn" else None
        specials = Specials(*DictionaryAlphabet.markers, "<oov>", longest)
        vocabulary = Vocabulary(words, what=_WORDS, specials=specials)
        if "<oov>" not in vocabulary:
            raise FormatError(f"'{_WORDS}' has no <oov>; get the file that belongs to the model")
    if characters:
        alphabet = make_alphabet(characters, tokens.max_chars, _CHARACTERS)
    languages = read_languages(source)
    arrays = _joined(read_state_dict(source, name) for name in (_TOKENS, _ENCODER))
    layout = Layout(names=_NAMES | (_MIXED_NAMES if config.lstm.mixed else _LSTM_NAMES))
    weights, types = read_weights(config, layout, arrays, what)
    return Checkpoint(
        config=config,
        weights=weights,
        alphabet=alphabet,
        vocabulary=vocabulary,
        notes={"languages": languages} if languages else {},
        origin=source.name,
        stored_types=types,
    )


def _read_architecture(source: Source) -> tuple[dict[str, Any], str]:
    """Find the file that describes the layers, by the name that config.json gives it."""
    if _CONFIG not in source.names:
        raise FormatError(
            f"'{source.name}' has {_ENCODER} but no {_CONFIG}; get the complete model folder"
        )
    outer = source.read_json(_CONFIG)
    if "encoder" in outer and "token_embedder" in outer:
        return outer, _CONFIG
    path = outer.get("config_path")
    if not isinstance(path, str):
        raise FormatError(f"'{_CONFIG}' names no config_path; get the complete model folder")
    # The path is that of the machine that trained the model: only its last part counts.
    name = path.replace("\\", "/").rpartition("/")[2]
    if name in source.names and name != _CONFIG:
        return source.read_json(name), name
    if name in PUBLISHED:
        return read_json(_SAMPLE), name
    raise FormatError(
        f"'{_CONFIG}' names the architecture {path[-60:]!r}, which is not in '{source.name}'; "
        "put that JSON file into the folder"
    )


def _joined(files: Iterable[Arrays]) -> Arrays:
    """The arrays of several files, as FILE/NAME.

    torch's nn.LSTM adds two biases, for cuDNN's sake; our LSTM has one, which is their sum.
    """
    parts: dict[str, list[Callable[[], Array]]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    types: dict[str, str] = {}
    for arrays in files:
        for name, shape in arrays.shapes.items():
            key = f"{arrays.what}/{re.sub('^encoder.bias_[ih]h_', 'encoder.bias_', name)}"
            if shapes.setdefault(key, shape) != shape:
                raise FormatError(
                    f"'{arrays.what}': {name} has shape {shape}, the other bias {shapes[key]}; "
                    "get files that belong together"
                )
            types[key] = arrays.types[name]
            parts.setdefault(key, []).append(partial(arrays.floats, name))

    def read(key: str) -> Array:
        first, *more = parts[key]
        return sum((read() for read in more), start=first())

    return Arrays(f"{_TOKENS}, {_ENCODER}", shapes, types, read)


def _read_encoder(architecture: Mapping[str, Any], what: str) -> LstmConfig:
    name = read_section(architecture, "encoder", what).get("name")
    given: dict[str, Any] = {"skip_connections": True}
    if read_value(Literal["elmo", "lstm"], name, "encoder.name", what) == "lstm":
        # Clips and skip connections are parts of the `elmo` encoder alone, whatever the file says.
        given = {"skip_connections": False, "cell_clip": None, "proj_clip": None, "mixed": True}
    lstm = read_lstm(architecture, "encoder", what, **given)
    # With equal sizes our LSTM would leave out a projection that these files have.
    if not lstm.projected:
        raise FormatError(
            f"'{what}': encoder.dim={lstm.dim} equals projection_dim, yet such a model projects; "
            "this is not supported, use a larger dim"
        )
    return lstm

"""ELMoForManyLangs folders and zips: config.json, char.dic, word.dic and two pickles.

`config.json` names the file with the architecture by a path of the machine that trained the model.
Only its last part is used, in the folder or in `PUBLISHED`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig
from elmore.errors import ConfigError, FormatError
from elmore.formats.bilm_options import Section, read_languages
from elmore.formats.bilm_weights import check_arrays, linked_weights, torch_links
from elmore.formats.checkpoint import Checkpoint
from elmore.formats.containers.arrays import Arrays
from elmore.formats.containers.sources import Source
from elmore.formats.containers.torch_files import read_state_dict
from elmore.formats.dictionaries import read_dictionary
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
    r"tokens\.convolutions": f"{_TOKENS}/convolutions",
    r"tokens\.highways": f"{_TOKENS}/highways._layers",
    r"tokens\.projection": f"{_TOKENS}/projection",
    r"(\w+)_layers\.(\d+)": rf"{_ENCODER}/\1_layer_\2",
}
# The `lstm` encoder is torch's own nn.LSTM.
_MIXED_NAMES = {
    **dict(list(_NAMES.items())[:-1]),
    r"projection": f"{_ENCODER}/projection",
    r"forward_layers\.(\d+)\.input_weight": rf"{_ENCODER}/encoder.weight_ih_l\1",
    r"forward_layers\.(\d+)\.state_weight": rf"{_ENCODER}/encoder.weight_hh_l\1",
    r"forward_layers\.(\d+)\.bias": rf"{_ENCODER}/encoder.bias_l\1",
    r"backward_layers\.(\d+)\.input_weight": rf"{_ENCODER}/encoder.weight_ih_l\1_reverse",
    r"backward_layers\.(\d+)\.state_weight": rf"{_ENCODER}/encoder.weight_hh_l\1_reverse",
    r"backward_layers\.(\d+)\.bias": rf"{_ENCODER}/encoder.bias_l\1_reverse",
}
_Kind = Literal["cnn", "lstm"]

# The architecture of the published models, whose config.json names this file but whose folders
# mostly lack it.
_SAMPLE: dict[str, Any] = {
    "encoder": {
        "name": "elmo",
        "projection_dim": 512,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 4096,
        "n_layers": 2,
    },
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
}
PUBLISHED: Mapping[str, dict[str, Any]] = {
    "cnn_50_100_512_4096_sample.json": _SAMPLE,
    "cnn_0_100_512_4096_sample.json": _SAMPLE,
}


def sniff(source: Source) -> bool:
    """Whether the two pickles are there."""
    return {_TOKENS, _ENCODER} <= set(source.names())


def read(source: Source) -> Checkpoint:
    """Read a model; its tensors are read on request."""
    architecture, what = _read_architecture(source)
    tokens = Section(architecture, what).section("token_embedder")
    characters = read_dictionary(source, _CHARACTERS) if tokens.number("char_dim") else []
    words = read_dictionary(source, _WORDS) if tokens.number("word_dim") else []
    config = _config(architecture, len(characters), len(words), what)
    alphabet = vocabulary = None
    if words:
        # With a CNN the original cuts long words before it looks them up.
        cut = tokens.value("name", _Kind) == "cnn"
        longest = config.tokens.max_chars - 2 if cut else None
        specials = Specials(*DictionaryAlphabet.markers, "<oov>", longest)
        vocabulary = Vocabulary(words, what=_WORDS, specials=specials)
        if "<oov>" not in vocabulary:
            raise FormatError(f"'{_WORDS}' has no <oov>; get the file that belongs to the model")
    if characters:
        try:
            alphabet = DictionaryAlphabet(characters, config.tokens.max_chars)
        except ConfigError as error:
            raise FormatError(f"'{_CHARACTERS}': {error}") from None
    languages = read_languages(source)
    arrays = _joined(read_state_dict(source, name) for name in (_TOKENS, _ENCODER))
    table = torch_links(config, _MIXED_NAMES if config.lstm.mixed else _NAMES)
    check_arrays(table, arrays, what, all_known=True)
    return Checkpoint(
        config=config,
        weights=linked_weights(config, table, arrays),
        alphabet=alphabet,
        vocabulary=vocabulary,
        notes={"languages": languages} if languages else {},
        origin=source.name,
        stored_types=frozenset(arrays.types.values()),
    )


def _read_architecture(source: Source) -> tuple[dict[str, Any], str]:
    """Find the file that describes the layers, by the name that config.json gives it."""
    if _CONFIG not in source.names():
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
    if name in source.names() and name != _CONFIG:
        return source.read_json(name), name
    if name in PUBLISHED:
        return dict(PUBLISHED[name]), name
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


# The architecture ---------------------------------------------------------------------------------


def _config(
    architecture: Mapping[str, Any], n_characters: int, n_words: int, what: str
) -> BiLmConfig:
    """Build a config; the counts are those of the dictionaries, 0 for one that is not used."""
    section = Section(architecture, what).section("token_embedder")
    kind = section.value("name", _Kind)
    if kind == "lstm" and n_characters:
        raise FormatError(
            f"'{what}' has a token layer `lstm` over characters, which ELMoForManyLangs itself "
            "cannot run; train it with `cnn`"
        )
    try:
        tokens = TokenEncoderConfig(
            n_words=n_words,
            word_dim=section.number("word_dim"),
            # Only the CNN cuts words after so many characters.
            max_chars=section.number("max_characters_per_token") if kind == "cnn" else 50,
            **(_characters(section) if n_characters else {}),
            n_characters=n_characters,
        )
        encoder = Section(architecture, what).section("encoder")
        return BiLmConfig(tokens=tokens, lstm=_lstm(encoder))
    except ConfigError as error:
        raise FormatError(f"'{what}': {error}") from None


def _characters(section: Section) -> dict[str, Any]:
    return {
        "char_dim": section.number("char_dim"),
        "filters": section.filters(),
        "activation": section.activation(),
        "n_highway": section.number("n_highway"),
    }


def _lstm(encoder: Section) -> LstmConfig:
    # Clips and skip connections are parts of the `elmo` encoder alone, whatever the file says.
    mixed = encoder.value("name", Literal["elmo", "lstm"]) == "lstm"
    config = LstmConfig(
        dim=encoder.number("dim"),
        projection_dim=encoder.number("projection_dim"),
        n_layers=encoder.number("n_layers"),
        cell_clip=None if mixed else encoder.clip("cell_clip"),
        proj_clip=None if mixed else encoder.clip("proj_clip"),
        skip_connections=not mixed,
        mixed=mixed,
    )
    # With equal sizes our LSTM would leave out a projection that these files have.
    if not config.projected:
        raise ConfigError(
            f"encoder.dim={config.dim} equals projection_dim, yet such a model projects; "
            "this is not supported, use a larger dim"
        )
    return config

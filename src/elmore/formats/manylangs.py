"""ELMoForManyLangs folders and zips: config.json, char.dic, word.dic and two pickles.

`config.json` names the file with the architecture by a path of the machine that trained the model;
only its last part is used, inside the folder or among the defaults below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore._json import parse_json
from elmore._messages import shown
from elmore.config import (
    BiLmConfig,
    LstmConfig,
    TokenEncoderConfig,
    filters_from_json,
    weight_shapes,
)
from elmore.errors import ConfigError, FormatError
from elmore.formats.bilm_options import read_languages
from elmore.formats.bilm_weights import check_arrays, linked_weights
from elmore.formats.checkpoint import Checkpoint, LazyWeights
from elmore.formats.files.sources import Source
from elmore.formats.files.torch_files import StateDict, read_state_dict
from elmore.formats.lexicons import read_dictionary
from elmore.formats.torch_layout import TorchNames, torch_links, without_forget_bias
from elmore.limits import LIMITS
from elmore.text.characters import DictionaryAlphabet
from elmore.text.vocabulary import Specials, Vocabulary

__all__ = [
    "NAME",
    "PUBLISHED",
    "config_from_architecture",
    "dimensions",
    "read",
    "sniff",
    "stored_types",
]

NAME = "manylangs"

Array = NDArray[np.float32]
_TOKENS, _ENCODER, _CONFIG = "token_embedder.pkl", "encoder.pkl", "config.json"
_CHARACTERS, _WORDS = "char.dic", "word.dic"
_NAMES = TorchNames(
    characters="char_emb_layer.embedding.weight",
    first_character=0,
    words="word_emb_layer.embedding.weight",
    convolution="convolutions.{}",
    highway="highways._layers.{}",
    projection="projection",
    lstm="{}_layer_{}",
)
# nn.LSTM: tensors of layer k; the backward direction adds "_reverse".
_MIXED = {"input_weight": "encoder.weight_ih_l{}", "state_weight": "encoder.weight_hh_l{}"}
_MIXED_BIASES = ("encoder.bias_ih_l{}", "encoder.bias_hh_l{}")


def sniff(source: Source) -> bool:
    """Tell whether there are the two pickles."""
    return {_TOKENS, _ENCODER} <= set(source.names())


def read(source: Source) -> Checkpoint:
    """Read a model; the tensors follow when they are asked for."""
    architecture, what = _read_architecture(source)
    word_dim, char_dim = dimensions(architecture, what)
    characters = read_dictionary(source, _CHARACTERS) if char_dim else []
    words = read_dictionary(source, _WORDS) if word_dim else []
    config, cut = config_from_architecture(
        architecture, n_characters=len(characters), n_words=len(words), what=what
    )
    alphabet = vocabulary = None
    if words:
        longest = config.tokens.max_chars - 2 if cut else None
        vocabulary = Vocabulary(words, what=_WORDS, specials=_specials(longest))
        if "<oov>" not in vocabulary:
            raise FormatError(f"'{_WORDS}' has no <oov>; get the file that belongs to the model")
    if characters:
        try:
            alphabet = DictionaryAlphabet(characters, config.tokens.max_chars)
        except ConfigError as error:
            raise FormatError(f"'{_CHARACTERS}': {error}") from None
    languages = read_languages(source)
    return Checkpoint(
        config=config,
        weights=_weights(source, config, what),
        alphabet=alphabet,
        vocabulary=vocabulary,
        notes={"languages": languages} if languages else {},
        origin=source.name,
    )


def stored_types(source: Source) -> set[str]:
    """Name the types in which the weights are stored."""
    return {
        tensor.type_name
        for name in (_TOKENS, _ENCODER)
        for tensor in read_state_dict(source, name).tensors.values()
    }


def _specials(longest: int | None) -> Specials:
    begin, end = DictionaryAlphabet.markers
    return Specials(begin=begin, end=end, unknown="<oov>", longest=longest)


def _read_architecture(source: Source) -> tuple[dict[str, Any], str]:
    """Find the file that describes the layers, by the name that config.json gives it."""
    if _CONFIG not in source.names():
        raise FormatError(
            f"'{source.name}' has {_ENCODER} but no {_CONFIG}; get the whole model folder"
        )
    outer = parse_json(source.read(_CONFIG, LIMITS.json_bytes + 1), what=_CONFIG)
    if "encoder" in outer and "token_embedder" in outer:
        return outer, _CONFIG
    path = outer.get("config_path")
    if not isinstance(path, str):
        raise FormatError(f"'{_CONFIG}' names no config_path; get the whole model folder")
    name = path.replace("\\", "/").rpartition("/")[2]
    if name in source.names() and name != _CONFIG:
        return parse_json(source.read(name, LIMITS.json_bytes + 1), what=name), name
    if name in PUBLISHED:
        return dict(PUBLISHED[name]), name
    raise FormatError(
        f"'{_CONFIG}' names the architecture {path[-60:]!r}, which is not in '{source.name}'; "
        "put that JSON file into the folder"
    )


def _weights(source: Source, config: BiLmConfig, what: str) -> LazyWeights:
    tokens = read_state_dict(source, _TOKENS)
    encoder = read_state_dict(source, _ENCODER)
    table = torch_links(config, _NAMES)
    mine = [link for link in table if link.weight.startswith("tokens.")]
    rest = [link for link in table if not link.weight.startswith("tokens.")]
    check_arrays(mine, tokens.shapes(), what, _TOKENS, all_known=True)
    token_weights = linked_weights(config, mine, tokens.read)
    readers: dict[str, Callable[[], Array]] = {}
    if config.lstm.mixed:
        readers |= _mixed_readers(config, encoder, what)
    else:
        check_arrays(rest, encoder.shapes(), what, _ENCODER, all_known=True)
        layers = linked_weights(config, rest, encoder.read)
        readers |= {link.weight: _bind(layers, link.weight) for link in rest}
    readers |= {link.weight: _bind(token_weights, link.weight) for link in mine}
    return LazyWeights(readers)


def _bind(weights: Mapping[str, Array], name: str) -> Callable[[], Array]:
    return lambda: weights[name]


def _mixed_readers(
    config: BiLmConfig, encoder: StateDict, what: str
) -> dict[str, Callable[[], Array]]:
    """The `lstm` encoder: torch's own nn.LSTM, whose two biases are one of ours."""
    shapes, found = weight_shapes(config), encoder.shapes()
    wanted: dict[str, tuple[int, ...]] = {}
    readers: dict[str, Callable[[], Array]] = {}

    def copied(weight: str, name: str) -> None:
        wanted[name] = shapes[weight]
        readers[weight] = lambda: encoder.read(name)

    def summed(weight: str, names: list[str]) -> None:
        wanted.update(dict.fromkeys(names, shapes[weight]))
        readers[weight] = lambda: without_forget_bias(
            encoder.read(names[0]) + encoder.read(names[1])
        )

    for direction, suffix in zip(config.directions, ("", "_reverse"), strict=True):
        for k in range(config.lstm.n_layers):
            for part, pattern in _MIXED.items():
                copied(f"{direction}_layers.{k}.{part}", pattern.format(k) + suffix)
            biases = [pattern.format(k) + suffix for pattern in _MIXED_BIASES]
            summed(f"{direction}_layers.{k}.bias", biases)
    for part in ("weight", "bias"):
        copied(f"projection.{part}", f"projection.{part}")
    for name, shape in wanted.items():
        if found.get(name) != shape:
            raise FormatError(
                f"'{_ENCODER}': {name} has shape {found.get(name)}, '{what}' asks for {shape}; "
                "get files that belong together"
            )
    for name in found:
        if name not in wanted:
            raise FormatError(
                f"'{_ENCODER}' has {name[:60]}, of which '{what}' knows nothing; get files that "
                "belong together"
            )
    return readers


# Of the published models, which name this file and mostly do not hold it.
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


def dimensions(architecture: Mapping[str, Any], what: str) -> tuple[int, int]:
    """Give the sizes of word and character embeddings; 0 where there is no such part."""
    tokens = _object(architecture, "token_embedder", what)
    return (
        _number(tokens, "token_embedder", "word_dim", what),
        _number(tokens, "token_embedder", "char_dim", what),
    )


def config_from_architecture(
    architecture: Mapping[str, Any], *, n_characters: int, n_words: int, what: str
) -> tuple[BiLmConfig, bool]:
    """Build a config.

    Args:
        architecture: the parsed file.
        n_characters: entries of char.dic, 0 if the model reads none.
        n_words: entries of word.dic, 0 if the model reads none.
        what: name of the file, for messages.

    Returns:
        the config, and whether long words are cut before they are looked up.
    """
    section = _object(architecture, "token_embedder", what)
    encoder = _object(architecture, "encoder", what)
    kind = _choice(section, "token_embedder", "name", ("cnn", "lstm"), what)
    if kind == "lstm" and n_characters:
        raise FormatError(
            f"'{what}' has a token layer `lstm` over characters, with which ELMoForManyLangs "
            "itself cannot run; train it with `cnn`"
        )
    word_dim, char_dim = dimensions(architecture, what)
    try:
        tokens = TokenEncoderConfig(
            n_words=n_words,
            word_dim=word_dim,
            max_chars=_number(section, "token_embedder", "max_characters_per_token", what)
            if kind == "cnn"
            else 50,
            **(_characters(section, n_characters, char_dim, what) if n_characters else {}),
        )
        config = BiLmConfig(tokens=tokens, lstm=_lstm(encoder, what))
    except ConfigError as error:
        raise FormatError(f"'{what}': {error}") from None
    return config, kind == "cnn"


def _characters(
    section: Mapping[str, Any], n_characters: int, char_dim: int, what: str
) -> dict[str, Any]:
    return {
        "n_characters": n_characters,
        "char_dim": char_dim,
        "filters": filters_from_json(section.get("filters"), what=f"token_embedder of '{what}'"),
        "activation": _choice(section, "token_embedder", "activation", ("relu", "tanh"), what),
        "n_highway": _number(section, "token_embedder", "n_highway", what),
    }


def _lstm(encoder: Mapping[str, Any], what: str) -> LstmConfig:
    mixed = _choice(encoder, "encoder", "name", ("elmo", "lstm"), what) == "lstm"
    config = LstmConfig(
        dim=_number(encoder, "encoder", "dim", what),
        projection_dim=_number(encoder, "encoder", "projection_dim", what),
        n_layers=_number(encoder, "encoder", "n_layers", what),
        cell_clip=None if mixed else _clip(encoder, "cell_clip", what),
        proj_clip=None if mixed else _clip(encoder, "proj_clip", what),
        skip_connections=not mixed,
        mixed=mixed,
    )
    if not config.projected:
        raise ConfigError(
            f"encoder.dim={config.dim} equals projection_dim, yet such a model projects; "
            "this is not supported, use a larger dim"
        )
    return config


def _object(data: Mapping[str, Any], key: str, what: str) -> Mapping[str, Any]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise FormatError(
            f"'{what}' has no object {key!r}; is it the architecture of an ELMoForManyLangs model?"
        )
    return value


def _number(data: Mapping[str, Any], path: str, key: str, what: str) -> int:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FormatError(
            f"'{what}': {path}.{key}={shown(value)} must be a whole number; correct it"
        )
    return value


def _choice(data: Mapping[str, Any], path: str, key: str, known: tuple[str, ...], what: str) -> Any:
    value = data.get(key)
    value = value.lower() if isinstance(value, str) and key == "name" else value
    if value not in known:
        raise FormatError(
            f"'{what}': {path}.{key}={shown(value)} is unknown; known are {', '.join(known)}"
        )
    return value


def _clip(data: Mapping[str, Any], key: str, what: str) -> float | None:
    """Read a clip; null and 0 mean none, as in the original."""
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"'{what}': encoder.{key}={shown(value)} must be a number; correct it")
    return float(value) or None

"""ELMoForManyLangs folders and zips: config.json, char.dic, word.dic and two pickles.

`config.json` names the file with the architecture by a path of the machine that trained the model.
Only its last part is used, in the folder or in `PUBLISHED`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.config import (
    BiLmConfig,
    LstmConfig,
    TokenEncoderConfig,
    filters_from_json,
    weight_shapes,
)
from elmore.errors import ConfigError, FormatError
from elmore.formats.bilm_options import Section, read_languages
from elmore.formats.bilm_weights import check_arrays, linked_weights
from elmore.formats.checkpoint import Checkpoint, LazyWeights
from elmore.formats.containers.sources import Source
from elmore.formats.containers.torch_files import StateDict, read_state_dict
from elmore.formats.lexicons import read_dictionary
from elmore.formats.torch_layout import TorchNames, torch_links, without_forget_bias
from elmore.text.characters import DictionaryAlphabet
from elmore.text.vocabulary import Specials, Vocabulary

__all__ = ["NAME", "PUBLISHED", "read", "sniff", "stored_types"]

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
_KINDS = ("cnn", "lstm")

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
        cut = tokens.choice("name", _KINDS) == "cnn"
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
    return Checkpoint(
        config=config,
        weights=_weights(source, config, what),
        alphabet=alphabet,
        vocabulary=vocabulary,
        notes={"languages": languages} if languages else {},
        origin=source.name,
    )


def stored_types(source: Source) -> set[str]:
    """The types in which the weights are stored."""
    return {
        tensor.type_name
        for name in (_TOKENS, _ENCODER)
        for tensor in read_state_dict(source, name).tensors.values()
    }


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


def _weights(source: Source, config: BiLmConfig, what: str) -> LazyWeights:
    tokens = read_state_dict(source, _TOKENS)
    encoder = read_state_dict(source, _ENCODER)
    table = torch_links(config, _NAMES)
    # Two files with one table: the token layer is in one, the LSTMs in the other.
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
        readers |= {link.weight: partial(layers.__getitem__, link.weight) for link in rest}
    readers |= {link.weight: partial(token_weights.__getitem__, link.weight) for link in mine}
    return LazyWeights(readers)


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

    # torch's nn.LSTM adds two biases, for cuDNN's sake; our LSTM has one, and adds 1 to the
    # forget gate when it runs.
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
                f"'{_ENCODER}' has {name[:60]}, which '{what}' does not describe; get files that "
                "belong together"
            )
    return readers


# The architecture ---------------------------------------------------------------------------------


def _config(
    architecture: Mapping[str, Any], n_characters: int, n_words: int, what: str
) -> BiLmConfig:
    """Build a config; the counts are those of the dictionaries, 0 for one that is not used."""
    section = Section(architecture, what).section("token_embedder")
    kind = section.choice("name", _KINDS)
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
            **(_characters(section, n_characters) if n_characters else {}),
        )
        encoder = Section(architecture, what).section("encoder")
        return BiLmConfig(tokens=tokens, lstm=_lstm(encoder))
    except ConfigError as error:
        raise FormatError(f"'{what}': {error}") from None


def _characters(section: Section, n_characters: int) -> dict[str, Any]:
    what = f"token_embedder of '{section.what}'"
    return {
        "n_characters": n_characters,
        "char_dim": section.number("char_dim"),
        "filters": filters_from_json(section.data.get("filters"), what=what),
        "activation": section.choice("activation", ("relu", "tanh")),
        "n_highway": section.number("n_highway"),
    }


def _lstm(encoder: Section) -> LstmConfig:
    # Clips and skip connections are parts of the `elmo` encoder alone, whatever the file says.
    mixed = encoder.choice("name", ("elmo", "lstm")) == "lstm"
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

"""The architecture file of an ELMoForManyLangs model as a config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elmore._messages import shown
from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig, filters_from_json
from elmore.errors import ConfigError, FormatError

__all__ = ["PUBLISHED", "config_from_architecture", "dimensions"]

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

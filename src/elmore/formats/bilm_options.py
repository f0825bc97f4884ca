"""`options.json` of bilm-tf and AllenNLP: to a config and back."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from elmore._json import parse_json
from elmore._messages import shown
from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig, filters_from_json
from elmore.errors import ConfigError, FormatError
from elmore.formats.files.sources import Source
from elmore.limits import LIMITS
from elmore.text.vocabulary import Vocabulary

__all__ = [
    "config_from_options",
    "find_options",
    "find_vocabulary",
    "options_from_config",
    "read_languages",
    "read_options",
    "read_vocabulary",
]

_META = "meta.json"


def find_options(source: Source) -> str | None:
    """Name the options file, if there is one and no doubt which."""
    names = source.names()
    if "options.json" in names:
        return "options.json"
    found = sorted(name for name in names if name.endswith("options.json"))
    return found[0] if len(found) == 1 else None


def read_options(source: Source, name: str) -> dict[str, Any]:
    """Read an options file."""
    data = source.read(name, LIMITS.json_bytes + 1)
    if data.startswith(b"\x89HDF"):
        raise FormatError(f"'{name}' is an HDF5 file, not options; pass (options, weights)")
    return parse_json(data, what=name)


def find_vocabulary(names: tuple[str, ...]) -> str | None:
    """Name the vocabulary among some files, if there is one and no doubt which."""
    for usual in ("vocab.txt.gz", "vocab.txt"):  # simple_elmo prefers the packed one
        if usual in names:
            return usual
    found = [n for n in names if n.startswith("vocab") and n.endswith((".txt", ".txt.gz"))]
    return found[0] if len(found) == 1 else None


def read_vocabulary(source: Source) -> Vocabulary | None:
    """Read the vocabulary beside a model, packed or not."""
    name = find_vocabulary(source.names())
    if name is None:
        return None
    with closing(source.open(name)) as stream:
        if not name.endswith(".gz"):
            return Vocabulary.from_stream(stream, what=name)
        try:
            with gzip.GzipFile(fileobj=stream) as unpacked:
                return Vocabulary.from_stream(unpacked, what=name)  # type: ignore[arg-type]  # GzipFile reads like a BinaryIO
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(f"'{name}' cannot be unpacked ({error}); re-download it") from None


def read_languages(source: Source) -> list[str]:
    """Give the languages that NLPL's `meta.json` names; none where it is missing or unreadable.

    Its layout is nowhere fixed and no model depends on it, so what cannot be read is passed over.
    """
    if _META not in source.names():
        return []
    try:
        meta = parse_json(source.read(_META, LIMITS.json_bytes + 1), what=_META)
    except FormatError:
        return []
    corpora = meta.get("corpus")
    entries = [meta, *(corpora if isinstance(corpora, list) else [corpora])]
    found = [entry.get("language") for entry in entries if isinstance(entry, dict)]
    return sorted({name for name in found if isinstance(name, str) and 0 < len(name) <= 40})


# Rows of the array; options say 261 in training and 262 for inference, so the key is not trusted.
_N_CHARACTERS = 261


def config_from_options(
    options: Mapping[str, Any], *, bidirectional: bool, n_words: int, what: str
) -> BiLmConfig:
    """Build a config.

    Args:
        options: the parsed file.
        bidirectional: whether the weights have a backward direction.
        n_words: rows of the word table, used if the options name no characters.
        what: name of the file, for messages.
    """
    lstm = _object(options, "lstm", what)
    try:
        lstm_config = LstmConfig(
            dim=_number(lstm, "lstm", "dim", what),
            projection_dim=_number(lstm, "lstm", "projection_dim", what),
            n_layers=_number(lstm, "lstm", "n_layers", what, default=1),
            cell_clip=_clip(lstm, "cell_clip", what),
            proj_clip=_clip(lstm, "proj_clip", what),
            skip_connections=_flag(lstm, "use_skip_connections", what),
            bidirectional=bidirectional,
        )
        dim = lstm_config.projection_dim
        if "char_cnn" in options:
            tokens = _characters(_object(options, "char_cnn", what), dim, what)
        elif n_words:
            tokens = TokenEncoderConfig(n_words=n_words, word_dim=dim, projected=False)
        else:
            raise FormatError(
                f"'{what}' names no char_cnn and the weights hold no word table `embedding`; "
                "pass the options file that belongs to them"
            )
        return BiLmConfig(tokens=tokens, lstm=lstm_config)
    except ConfigError as error:
        raise FormatError(f"'{what}': {error}") from None


def options_from_config(config: BiLmConfig) -> dict[str, Any]:
    """Give the options that AllenNLP and bilm-tf need for inference."""
    lstm, tokens = config.lstm, config.tokens
    options: dict[str, Any] = {
        "lstm": {
            "use_skip_connections": lstm.skip_connections,
            "projection_dim": lstm.projection_dim,
            "cell_clip": _whole_if_possible(lstm.cell_clip),
            "proj_clip": _whole_if_possible(lstm.proj_clip),
            "dim": lstm.dim,
            "n_layers": lstm.n_layers,
        }
    }
    if not lstm.bidirectional:
        options["bidirectional"] = False
    if tokens.n_characters:
        options["char_cnn"] = {
            "activation": tokens.activation,
            "filters": [list(pair) for pair in tokens.filters],
            "n_highway": tokens.n_highway,
            "embedding": {"dim": tokens.char_dim},
            "n_characters": _N_CHARACTERS + 1,
            "max_characters_per_token": tokens.max_chars,
        }
    return options


def _characters(section: Mapping[str, Any], dim: int, what: str) -> TokenEncoderConfig:
    filters = filters_from_json(section.get("filters"), what=f"char_cnn of '{what}'")
    activation = section.get("activation", "relu")
    if activation not in ("relu", "tanh"):
        raise ConfigError(
            f"char_cnn.activation={shown(activation)} is unknown; known are 'relu' and 'tanh'"
        )
    n_characters = _number(section, "char_cnn", "n_characters", what, default=_N_CHARACTERS + 1)
    if n_characters not in (_N_CHARACTERS, _N_CHARACTERS + 1):
        raise ConfigError(
            f"char_cnn.n_characters={n_characters}; byte models have 261 (training) or 262"
        )
    embedding = _object(section, "embedding", what)
    return TokenEncoderConfig(
        n_characters=_N_CHARACTERS,
        char_dim=_number(embedding, "char_cnn.embedding", "dim", what),
        max_chars=_number(section, "char_cnn", "max_characters_per_token", what, default=50),
        filters=filters,
        activation=activation,
        n_highway=_number(section, "char_cnn", "n_highway", what, default=0),
        projected=sum(count for _, count in filters) != dim,
    )


def _object(data: Mapping[str, Any], key: str, what: str) -> Mapping[str, Any]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise FormatError(
            f"'{what}' has no object {key!r}; is it the options file of an ELMo model?"
        )
    return value


def _number(
    data: Mapping[str, Any], path: str, key: str, what: str, *, default: int | None = None
) -> int:
    value = data.get(key, default)
    if value is None:
        if default is not None:
            return default
        raise FormatError(f"'{what}' has no {path}.{key}; add it or pass the right options file")
    if isinstance(value, float) and value.is_integer() and abs(value) <= LIMITS.json_int:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(
            f"'{what}': {path}.{key}={shown(value)} must be a whole number; correct it"
        )
    return value


def _clip(data: Mapping[str, Any], key: str, what: str) -> float | None:
    """Read a clip; missing, null and 0 all mean none (0 as in AllenNLP)."""
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(
            f"'{what}': lstm.{key}={shown(value)} must be a number or null; correct it"
        )
    return float(value) or None


def _flag(data: Mapping[str, Any], key: str, what: str) -> bool:
    value = data.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise FormatError(f"'{what}': lstm.{key}={shown(value)} must be true or false; correct it")
    return value


def _whole_if_possible(value: float | None) -> float | int | None:
    return int(value) if value is not None and float(value).is_integer() else value

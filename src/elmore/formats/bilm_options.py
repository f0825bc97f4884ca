"""What comes with the weights of bilm-tf and AllenNLP: options.json, vocabulary, languages."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from elmore.base.json import parse_json
from elmore.base.messages import shown
from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig, filters_from_json
from elmore.errors import ConfigError, FormatError
from elmore.formats.containers.sources import Source
from elmore.limits import LIMITS
from elmore.text.vocabulary import Vocabulary

__all__ = [
    "N_CHARACTERS",
    "Section",
    "config_from_options",
    "find_options",
    "find_vocabulary",
    "options_from_config",
    "options_from_sizes",
    "read_languages",
    "read_options",
    "read_vocabulary",
]

_META = "meta.json"
# Rows of the array. Options say 261 in training and 262 for inference, so the key is not trusted.
N_CHARACTERS = 261


# The files ----------------------------------------------------------------------------------------


def find_options(source: Source) -> str | None:
    """Name of the options file, unless there is none or more than one could be meant."""
    names = source.names()
    if "options.json" in names:
        return "options.json"
    found = sorted(name for name in names if name.endswith("options.json"))
    return found[0] if len(found) == 1 else None


def read_options(source: Source, name: str) -> dict[str, Any]:
    """Read an options file."""
    data = source.read(name, LIMITS.json_bytes + 1)
    # The two files are often passed in the wrong order.
    if data.startswith(b"\x89HDF"):
        raise FormatError(f"'{name}' is an HDF5 file, not options; pass (options, weights)")
    return parse_json(data, what=name)


def find_vocabulary(names: tuple[str, ...]) -> str | None:
    """Name of the vocabulary, unless there is none or more than one could be meant."""
    # Folders may hold vocabularies of other models too: a usual name wins, and of several
    # unusual ones none is guessed.
    for usual in ("vocab.txt.gz", "vocab.txt"):  # simple_elmo prefers the compressed one
        if usual in names:
            return usual
    found = [n for n in names if n.startswith("vocab") and n.endswith((".txt", ".txt.gz"))]
    return found[0] if len(found) == 1 else None


def read_vocabulary(source: Source) -> Vocabulary | None:
    """Read the vocabulary of a model, compressed or not."""
    name = find_vocabulary(source.names())
    if name is None:
        return None
    with closing(source.open(name)) as stream:
        if not name.endswith(".gz"):
            return Vocabulary.from_stream(stream, what=name)
        try:
            with gzip.GzipFile(fileobj=stream) as plain:
                return Vocabulary.from_stream(plain, what=name)  # type: ignore[arg-type]  # GzipFile reads like a BinaryIO
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(
                f"'{name}' cannot be decompressed ({error}); download it again"
            ) from None


def read_languages(source: Source) -> list[str]:
    """The languages that NLPL's `meta.json` names; empty if it is missing or unreadable.

    Its layout is not specified and no model depends on it, so errors in it are ignored.
    """
    if _META not in source.names():
        return []
    try:
        meta = source.read_json(_META)
    except FormatError:
        return []
    corpora = meta.get("corpus")
    entries = [meta, *(corpora if isinstance(corpora, list) else [corpora])]
    found = [entry.get("language") for entry in entries if isinstance(entry, dict)]
    return sorted({name for name in found if isinstance(name, str) and 0 < len(name) <= 40})


# The options --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """An object in a JSON file of options; each value is checked when it is read.

    `path` is where the object is in the file, such as "char_cnn.", for messages.
    """

    data: Mapping[str, Any]
    what: str
    path: str = ""

    def section(self, key: str) -> Section:
        """The object at a key."""
        value = self.data.get(key)
        if not isinstance(value, dict):
            raise FormatError(
                f"'{self.what}' has no object '{self.path}{key}'; is it the options file of an "
                "ELMo model?"
            )
        return Section(value, self.what, f"{self.path}{key}.")

    def number(self, key: str, default: int | None = None) -> int:
        """The whole number at a key."""
        value = self.data.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise FormatError(
                f"'{self.what}' has no {self.path}{key}; add it or pass the right options file"
            )
        # Some writers store whole numbers as 4096.0.
        if isinstance(value, float) and value.is_integer() and abs(value) <= LIMITS.json_int:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._invalid(key, "must be a whole number; correct it")
        return value

    def clip(self, key: str) -> float | None:
        """The clip at a key; missing, null and 0 all mean none (0 as in AllenNLP)."""
        value = self.data.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise self._invalid(key, "must be a number or null; correct it")
        return float(value or 0) or None

    def flag(self, key: str) -> bool:
        """The truth value at a key; false if it is missing."""
        value = self.data.get(key)
        if not isinstance(value, bool | None):
            raise self._invalid(key, "must be true or false; correct it")
        return bool(value)

    def choice(self, key: str, known: tuple[str, ...], default: str | None = None) -> Any:
        """The name at a key, in lower case."""
        value = self.data.get(key, default)
        value = value.lower() if isinstance(value, str) else value
        if value not in known:
            raise self._invalid(key, f"is unknown; known are {', '.join(known)}")
        return value

    def _invalid(self, key: str, problem: str) -> FormatError:
        return FormatError(f"'{self.what}': {self.path}{key}={shown(self.data.get(key))} {problem}")


def config_from_options(
    options: Mapping[str, Any], *, bidirectional: bool, n_words: int, what: str
) -> BiLmConfig:
    """Build a config.

    Args:
        options: the parsed file.
        bidirectional: whether the weights have a backward direction.
        n_words: rows of the word table, used if the options have no character layer.
        what: name of the file, for messages.
    """
    outer = Section(options, what)
    lstm = outer.section("lstm")
    try:
        lstm_config = LstmConfig(
            dim=lstm.number("dim"),
            projection_dim=lstm.number("projection_dim"),
            n_layers=lstm.number("n_layers", 1),
            cell_clip=lstm.clip("cell_clip"),
            proj_clip=lstm.clip("proj_clip"),
            skip_connections=lstm.flag("use_skip_connections"),
            bidirectional=bidirectional,
        )
        dim = lstm_config.projection_dim
        if "char_cnn" in options:
            tokens = _characters(outer.section("char_cnn"), dim)
        elif n_words:
            tokens = TokenEncoderConfig(n_words=n_words, word_dim=dim, projected=False)
        else:
            raise FormatError(
                f"'{what}' has no char_cnn and the weights have no word table `embedding`; "
                "pass the options file that belongs to them"
            )
        return BiLmConfig(tokens=tokens, lstm=lstm_config)
    except ConfigError as error:
        raise FormatError(f"'{what}': {error}") from None


def _characters(section: Section, dim: int) -> TokenEncoderConfig:
    filters = filters_from_json(section.data.get("filters"), what=f"char_cnn of '{section.what}'")
    # Another number means another alphabet, whose ids we could not make.
    n_characters = section.number("n_characters", N_CHARACTERS + 1)
    if n_characters not in (N_CHARACTERS, N_CHARACTERS + 1):
        raise ConfigError(
            f"char_cnn.n_characters={n_characters}; byte models have 261 (training) or 262"
        )
    return TokenEncoderConfig(
        n_characters=N_CHARACTERS,
        char_dim=section.section("embedding").number("dim"),
        max_chars=section.number("max_characters_per_token", 50),
        filters=filters,
        activation=section.choice("activation", ("relu", "tanh"), "relu"),
        n_highway=section.number("n_highway", 0),
        projected=sum(count for _, count in filters) != dim,
    )


def options_from_config(config: BiLmConfig) -> dict[str, Any]:
    """The options that AllenNLP and bilm-tf need for inference."""
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
            "n_characters": N_CHARACTERS + 1,
            "max_characters_per_token": tokens.max_chars,
        }
    return options


def options_from_sizes(
    *,
    dim: int,
    projection_dim: int,
    n_layers: int,
    char_dim: int,
    filters: list[list[int]],
    n_highway: int,
) -> dict[str, Any]:
    """The options of a byte model of which only the arrays are known.

    The rest is as in every published model: clips of 3, relu, and 50 characters per token.
    """
    return {
        "lstm": {
            "dim": dim,
            "projection_dim": projection_dim,
            "n_layers": n_layers,
            "cell_clip": 3,
            "proj_clip": 3,
            "use_skip_connections": True,
        },
        "char_cnn": {"embedding": {"dim": char_dim}, "filters": filters, "n_highway": n_highway},
    }


def _whole_if_possible(value: float | None) -> float | int | None:
    return int(value) if value is not None and float(value).is_integer() else value

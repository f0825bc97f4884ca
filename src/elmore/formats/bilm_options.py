"""What comes with the weights of bilm-tf and AllenNLP: options.json, vocabulary, languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

from elmore.base.io import decompressed
from elmore.base.json import Whole, from_json, parse_json
from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig
from elmore.errors import ConfigError, FormatError
from elmore.formats.containers.sources import Source
from elmore.limits import LIMITS
from elmore.text.vocabulary import Vocabulary

_META = "meta.json"
# Rows of the array. Options say 261 in training and 262 for inference, so the key is not trusted.
N_CHARACTERS = 261


# The files ----------------------------------------------------------------------------------------


def find_options(names: Sequence[str]) -> str | None:
    """Name of the options file, unless there is none or more than one could be meant."""
    return _usual_or_only(names, ("options.json",), "", ("options.json",))


def read_options(source: Source, name: str) -> dict[str, Any]:
    """Read an options file."""
    data = source.read(name, LIMITS.json_bytes + 1)
    # The two files are often passed in the wrong order.
    if data.startswith(b"\x89HDF"):
        raise FormatError(f"'{name}' is an HDF5 file, not options; pass (options, weights)")
    return parse_json(data, what=name)


def find_vocabulary(names: Sequence[str]) -> str | None:
    """Name of the vocabulary, unless there is none or more than one could be meant."""
    # Folders may hold vocabularies of other models too: a usual name wins, and of several
    # unusual ones none is guessed.
    usual = ("vocab.txt.gz", "vocab.txt")  # simple_elmo prefers the compressed one
    return _usual_or_only(names, usual, "vocab", (".txt", ".txt.gz"))


def _usual_or_only(
    names: Sequence[str], usual: tuple[str, ...], start: str, ends: tuple[str, ...]
) -> str | None:
    found = [name for name in names if name.startswith(start) and name.endswith(ends)]
    return next((name for name in usual if name in names), found[0] if len(found) == 1 else None)


def read_vocabulary(source: Source) -> Vocabulary | None:
    """Read the vocabulary of a model, compressed or not."""
    name = find_vocabulary(source.names())
    if name is None:
        return None
    with closing(source.open(name)) as stream, decompressed(stream, what=name) as plain:
        return Vocabulary.from_stream(plain, what=name)


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
        value = self.value(key, dict[str, Any])
        return Section(value, self.what, f"{self.path}{key}.")

    def value(self, key: str, kind: Any, *default: Any) -> Any:
        """The value at a key, of a type; a missing one and null mean the default, if there is."""
        value = self.data.get(key)
        if value is None and default:
            return default[0]
        # Some writers store whole numbers as 4096.0.
        if kind is Whole and isinstance(value, float) and abs(value) <= LIMITS.json_int:
            value = int(value) if value.is_integer() else value
        if isinstance(value, str):  # a name, which ELMoForManyLangs reads in any case
            value = value.lower()
        fix = "pass the right options file"
        return from_json(
            kind, value, what=f"'{self.what}'", key=f"{self.path}{key}", error=FormatError, fix=fix
        )

    def number(self, key: str, *default: int) -> int:
        """The whole number at a key."""
        return int(self.value(key, Whole, *default))

    def clip(self, key: str) -> float | None:
        """The clip at a key; missing, null and 0 all mean none (0 as in AllenNLP)."""
        return self.value(key, float, None) or None

    def filters(self) -> tuple[tuple[int, int], ...]:
        """The (width, count) pairs of the characters' convolutions."""
        return tuple(self.value("filters", tuple[tuple[int, int], ...]))

    def activation(self, *default: str) -> Any:
        """The activation of the characters' convolutions."""
        return self.value("activation", Literal["relu", "tanh"], *default)


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
            skip_connections=lstm.value("use_skip_connections", bool, False),
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
    filters = section.filters()
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
        activation=section.activation("relu"),
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
            "cell_clip": lstm.cell_clip,
            "proj_clip": lstm.proj_clip,
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


def options_from_shapes(
    what: str,
    *,
    embedding: Sequence[int],
    projections: Sequence[Sequence[int]],
    filters: Sequence[Sequence[int]],
    n_highway: int,
) -> dict[str, Any]:
    """The options of a byte model of which only the arrays are known.

    The rest is as in every published model: clips of 3, relu, and 50 characters per token.

    Args:
        what: the file, for messages.
        embedding: (n_characters, char_dim).
        projections: (projection_dim, dim) of each layer.
        filters: (count, char_dim, width) of each.
        n_highway: number of highway layers.
    """
    try:
        _, char_dim = embedding
        projection_dim, dim = projections[0]
        pairs = [[width, count] for count, _, width in filters]
    except (ValueError, IndexError):
        raise FormatError(
            f"'{what}' has an ELMo of unknown shapes; pass its options, or put them beside it"
        ) from None
    return {
        "lstm": {
            "dim": dim,
            "projection_dim": projection_dim,
            "n_layers": len(projections),
            "cell_clip": 3,
            "proj_clip": 3,
            "use_skip_connections": True,
        },
        "char_cnn": {"embedding": {"dim": char_dim}, "filters": pairs, "n_highway": n_highway},
    }

"""What comes with the weights of other programs: options, words, characters, languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from elmore.base.io import decompressed, read_lines
from elmore.base.json import from_json
from elmore.base.messages import shown
from elmore.config import BiLmConfig, LstmConfig, TokenEncoderConfig
from elmore.errors import ConfigError, FormatError, InputError
from elmore.formats.containers.sources import Source
from elmore.limits import LIMITS
from elmore.text.characters import DictionaryAlphabet
from elmore.text.vocabulary import Vocabulary

_META = "meta.json"
# Rows of the array. Options say 261 in training and 262 for inference, so the key is not trusted.
N_CHARACTERS = 261
# Keys that our configs call otherwise.
_FIELDS = {"max_characters_per_token": "max_chars", "use_skip_connections": "skip_connections"}
# ELMoForManyLangs strips this symbol as white space and then takes the empty line for it.
_IDEOGRAPHIC_SPACE = "\u3000"


# The files ----------------------------------------------------------------------------------------


def find_options(names: Sequence[str]) -> str | None:
    """Name of the options file, unless there is none or more than one could be meant."""
    return _usual_or_only(names, ("options.json",), "", ("options.json",))


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
    name = find_vocabulary(source.names)
    if name is None:
        return None
    with closing(source.open(name)) as stream, decompressed(stream, what=name) as plain:
        return Vocabulary.from_stream(plain, what=name)


def read_languages(source: Source) -> list[str]:
    """The languages that NLPL's `meta.json` names; empty if it is missing or unreadable.

    Its layout is not specified and no model depends on it, so errors in it are ignored.
    """
    if _META not in source.names:
        return []
    try:
        meta = source.read_json(_META)
    except FormatError:
        return []
    corpora = meta.get("corpus")
    entries = [meta, *(corpora if isinstance(corpora, list) else [corpora])]
    found = [entry.get("language") for entry in entries if isinstance(entry, dict)]
    return sorted({name for name in found if isinstance(name, str) and 0 < len(name) <= 40})


def read_dictionary(source: Source, name: str) -> list[str]:
    """Read the symbols of ELMoForManyLangs' `char.dic` or `word.dic`, in the order of their ids.

    Each line has a symbol, a tab and its id.

    Raises:
        FormatError: a line without an id, or ids that do not count from 0.
    """
    symbols: list[str] = []
    try:
        with closing(source.open(name)) as stream:
            for number, line in read_lines(
                stream, what=name, max_line=LIMITS.vocabulary_line_bytes
            ):
                symbol, _, text = line.rpartition("\t")  # a symbol may be a tab
                if text.strip() != str(len(symbols)):
                    raise FormatError(
                        f"{name}:{number} has {shown(text, 20)!r} for an id, expected "
                        f"{len(symbols)}; get the file that belongs to the model"
                    )
                symbols.append(symbol or _IDEOGRAPHIC_SPACE)
    except InputError as error:
        raise FormatError(str(error)) from None
    if not symbols:
        raise FormatError(f"{name} is empty; a dictionary has a symbol and an id on each line")
    return symbols


def make_alphabet(symbols: Sequence[str], max_chars: int, what: str) -> DictionaryAlphabet:
    """The alphabet of a dictionary of characters; `what` is its file for messages."""
    try:
        return DictionaryAlphabet(symbols, max_chars)
    except ConfigError as error:
        raise FormatError(f"'{what}': {error}") from None


# The options --------------------------------------------------------------------------------------


def read_section(options: Mapping[str, Any], key: str, what: str) -> dict[str, Any]:
    """The object at a key of parsed options, with our names and without nulls.

    `what` is the file for messages.
    """
    found = read_value(dict[str, Any], options.get(key), key, what)
    return {_FIELDS.get(k, k): _plain(value) for k, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    # Some writers store whole numbers as 4096.0.
    if isinstance(value, float) and value.is_integer() and abs(value) <= LIMITS.json_int:
        return int(value)
    # ELMoForManyLangs reads names in any case.
    return value.lower() if isinstance(value, str) else value


def read_value(kind: Any, data: Any, key: str, what: str) -> Any:
    """Check a value of the options; `kind` is a type as `from_json` takes it."""
    fix = "pass the right options file"
    return from_json(kind, data, what=f"'{what}'", key=key, error=FormatError, fix=fix, extra=True)


def read_lstm(options: Mapping[str, Any], key: str, what: str, **given: Any) -> LstmConfig:
    """The LSTM of bilm-tf's `lstm` or ELMoForManyLangs' `encoder`; `given` overrides the file."""
    defaults = {"n_layers": 1, "cell_clip": 0, "proj_clip": 0, "skip_connections": False}
    section = read_section(options, key, what)
    data = {**defaults, **section, "bidirectional": True, "mixed": False, **given}
    for clip in ("cell_clip", "proj_clip"):
        data[clip] = None if data[clip] == 0 else data[clip]  # as in AllenNLP
    lstm: LstmConfig = read_value(LstmConfig, data, key, what)
    return lstm


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
    lstm = read_lstm(options, "lstm", what, bidirectional=bidirectional)
    dim = lstm.projection_dim
    try:
        if "char_cnn" in options:
            tokens = _read_characters(options, dim, what)
        elif n_words:
            tokens = TokenEncoderConfig(n_words=n_words, word_dim=dim, projected=False)
        else:
            raise FormatError(
                f"'{what}' has no char_cnn and the weights have no word table `embedding`; "
                "pass the options file that belongs to them"
            )
        return BiLmConfig(tokens=tokens, lstm=lstm)
    except ConfigError as error:
        raise FormatError(f"'{what}': {error}") from None


def _read_characters(options: Mapping[str, Any], dim: int, what: str) -> TokenEncoderConfig:
    section = read_section(options, "char_cnn", what)
    # Another number means another alphabet, whose ids we could not make.
    n_characters = section.get("n_characters", N_CHARACTERS)
    if n_characters not in (N_CHARACTERS, N_CHARACTERS + 1):
        raise ConfigError(
            f"char_cnn.n_characters={shown(n_characters)}; byte models have 261 (training) or 262"
        )
    embedding = read_value(dict[str, Any], section.get("embedding"), "char_cnn.embedding", what)
    given = {
        "n_characters": N_CHARACTERS,
        "char_dim": embedding.get("dim"),
        "n_words": 0,
        "word_dim": 0,
    }
    tokens: TokenEncoderConfig = read_value(
        TokenEncoderConfig, {**section, **given}, "char_cnn", what
    )
    return replace(tokens, projected=tokens.n_filters != dim)


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

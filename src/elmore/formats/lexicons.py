"""Alphabets and vocabularies of elmore's own folder, and dictionaries of ELMoForManyLangs."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from elmore.base.io import read_lines
from elmore.base.messages import shown
from elmore.errors import ConfigError, FormatError, InputError
from elmore.formats.containers.sources import Source
from elmore.limits import LIMITS
from elmore.text.characters import Alphabet, ByteAlphabet, DictionaryAlphabet
from elmore.text.vocabulary import USUAL, Specials, Vocabulary

__all__ = [
    "CHARACTERS",
    "VOCABULARY",
    "AlphabetFacts",
    "alphabet_json",
    "dictionary_bytes",
    "read_alphabet",
    "read_dictionary",
    "read_words",
    "specials_json",
    "write_lexicons",
]

CHARACTERS, VOCABULARY = "characters.dic", "vocab.txt"


@dataclass(frozen=True, kw_only=True)
class AlphabetFacts:
    """What config.json says about the alphabet."""

    kind: Literal["bytes", "dictionary"]
    max_chars: Annotated[int, Meta(ge=LIMITS.min_chars, le=LIMITS.max_chars)]


def alphabet_json(alphabet: Alphabet | None) -> dict[str, Any] | None:
    """An alphabet as config.json describes it."""
    if alphabet is None:
        return None
    return {"kind": alphabet.kind, "max_chars": alphabet.max_chars}


def specials_json(vocabulary: Vocabulary | None) -> dict[str, Any]:
    """How words are looked up as config.json describes it; empty for the usual way."""
    if vocabulary is None or vocabulary.specials == USUAL:
        return {}
    return {"vocabulary": asdict(vocabulary.specials)}


def write_lexicons(folder: Path, alphabet: Alphabet | None, vocabulary: Vocabulary | None) -> None:
    """Write the files of an alphabet and a vocabulary.

    Raises:
        ConfigError: a word or character that does not fit on one line of text.
    """
    if isinstance(alphabet, DictionaryAlphabet):
        for symbol in alphabet.symbols:
            if not symbol or "\n" in symbol or symbol.endswith("\r"):
                raise ConfigError(f"the character {symbol!r} cannot be stored; leave it out")
        (folder / CHARACTERS).write_bytes(dictionary_bytes(alphabet.symbols))
    if vocabulary is not None:
        for word in vocabulary:
            # The reader strips these, so the word would come back as another one.
            if not word or "\n" in word or word != word.strip(" \t\r"):
                raise ConfigError(f"the word {word!r} cannot be stored; leave it out")
        (folder / VOCABULARY).write_bytes(vocabulary.to_bytes())


def read_alphabet(
    source: Source, facts: AlphabetFacts | None, files: Collection[str]
) -> Alphabet | None:
    """Read the alphabet that config.json describes; `files` are the names in the manifest."""
    if facts is None:
        return None
    if facts.kind == ByteAlphabet.kind:
        return ByteAlphabet(facts.max_chars)
    if CHARACTERS not in files:
        raise FormatError(f"'{source.name}' has no {CHARACTERS}; copy the folder again")
    try:
        return DictionaryAlphabet(read_dictionary(source, CHARACTERS), facts.max_chars)
    except ConfigError as error:
        raise FormatError(f"'{CHARACTERS}': {error}") from None


def read_words(source: Source, specials: Specials, files: Collection[str]) -> Vocabulary | None:
    """Read the vocabulary, if the manifest lists one; `specials` as config.json says."""
    if VOCABULARY not in files:
        return None
    # A length of 0 would make all words the same.
    if specials.longest is not None and not 1 <= specials.longest <= LIMITS.max_chars:
        raise FormatError(f"'config.json': vocabulary.longest={specials.longest}; correct it")
    with closing(source.open(VOCABULARY)) as stream:
        return Vocabulary.from_stream(stream, what=VOCABULARY, specials=specials)


# The original reader strips this symbol as white space and then takes the empty line for it.
_IDEOGRAPHIC_SPACE = "\u3000"


def read_dictionary(source: Source, name: str) -> list[str]:
    """Read the symbols of `char.dic` or `word.dic`, in the order of their ids.

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


def dictionary_bytes(symbols: tuple[str, ...]) -> bytes:
    """The contents of a dictionary file."""
    return "".join(f"{symbol}\t{k}\n" for k, symbol in enumerate(symbols)).encode("utf-8")

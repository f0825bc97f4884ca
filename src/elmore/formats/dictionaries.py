"""`char.dic` and `word.dic` of ELMoForManyLangs: a symbol, a tab and its id on each line."""

from __future__ import annotations

from contextlib import closing

from elmore._io import read_lines
from elmore._messages import shown
from elmore.errors import FormatError, InputError
from elmore.formats.sources import Source
from elmore.limits import LIMITS, Limits

__all__ = ["dictionary_bytes", "read_dictionary"]

# What the original reader takes a line for whose symbol it stripped away as white space.
_IDEOGRAPHIC_SPACE = "\u3000"


def read_dictionary(source: Source, name: str, *, limits: Limits = LIMITS) -> list[str]:
    """Read the symbols of a dictionary, in the order of their ids.

    Args:
        source: where the file lies.
        name: the file.
        limits: sizes allowed.

    Raises:
        FormatError: a line without an id, ids that do not count from 0, or a symbol twice.
    """
    symbols: list[str] = []
    seen: set[str] = set()
    try:
        with closing(source.open(name)) as stream:
            for number, line in read_lines(
                stream, what=name, max_line=limits.vocabulary_line_bytes
            ):
                symbol, _, text = line.rpartition("\t")
                if text.strip() != str(len(symbols)):
                    raise FormatError(
                        f"{name}:{number} has {shown(text, 20)!r} for an id, expected "
                        f"{len(symbols)}; get the file that belongs to the model"
                    )
                symbol = symbol or _IDEOGRAPHIC_SPACE
                if symbol in seen:
                    raise FormatError(
                        f"{name}:{number} repeats {shown(symbol, 40)!r}; keep each symbol once"
                    )
                if len(symbols) >= limits.vocabulary_lines:
                    raise FormatError(
                        f"{name} has over {limits.vocabulary_lines} lines; is it a dictionary?"
                    )
                seen.add(symbol)
                symbols.append(symbol)
    except InputError as error:
        raise FormatError(str(error)) from None
    if not symbols:
        raise FormatError(f"{name} is empty; a dictionary has a symbol and an id on each line")
    return symbols


def dictionary_bytes(symbols: tuple[str, ...]) -> bytes:
    """Give the file form."""
    return "".join(f"{symbol}\t{k}\n" for k, symbol in enumerate(symbols)).encode("utf-8")

"""Dictionaries of characters and words, as ELMoForManyLangs stores them."""

from __future__ import annotations

from contextlib import closing

from elmore.base.io import read_lines
from elmore.base.messages import shown
from elmore.errors import FormatError, InputError
from elmore.formats.containers.sources import Source
from elmore.limits import LIMITS

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

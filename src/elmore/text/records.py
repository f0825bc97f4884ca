"""Files that are more than lines of text: JSON lines, tables and CoNLL-U, one text per record."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

from elmore.base.messages import shown
from elmore.errors import ConfigError, InputError
from elmore.limits import LIMITS
from elmore.text.conll import conllu_sentences

__all__ = [
    "LINES",
    "Lines",
    "Records",
    "Text",
    "as_text",
    "data_suffix",
    "json_lines",
    "table_rows",
]

# A text that is still to be split, or the tokens of a sentence.
Text: TypeAlias = str | Sequence[str]
Lines: TypeAlias = Iterator[tuple[int, str]]

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
# Python's own limit, 131,072 characters, is shorter than many documents.
csv.field_size_limit(max(csv.field_size_limit(), LIMITS.text_line_bytes))


def as_text(text: Text) -> str:
    """A text, or tokens with spaces between them."""
    return text if isinstance(text, str) else " ".join(text)


@dataclass(frozen=True, kw_only=True)
class Records:
    """Where the texts of a file are; by default each line is one.

    A `.conllu` file is known by its name.

    Attributes:
        field: JSON lines: the key of a text, or of a list of tokens; null is an empty text.
        column: CSV or TSV: the name of the column in the first line, or its number from 1 in a
            file without names. For JSON lines it means the same as `field`.
        conllu: CoNLL-U: the words of column 2. As in a treebank's syntax, contractions are taken
            apart: *du* is *de le*.
    """

    field: str | None = None
    column: str | int | None = None
    conllu: bool = False

    def __post_init__(self) -> None:
        given = [self.field is not None, self.column is not None, self.conllu]
        if sum(given) > 1:
            raise ConfigError("field, column and conllu exclude each other; pass one of them")
        if isinstance(self.column, int) and self.column < 1:
            raise ConfigError(f"column={self.column}; columns count from 1")

    @property
    def named(self) -> bool:
        """Whether a text is only a part of its line."""
        return self.field is not None or self.column is not None

    def read(self, lines: Lines, name: str) -> Iterator[tuple[int, Text]]:
        """Yield the text or tokens of each record, and the number of its first line.

        Args:
            lines: of a file, with their numbers.
            name: of the file; its suffix tells CSV, TSV and CoNLL-U.

        Raises:
            InputError: a record without such a text, or a file of records read as lines.
        """
        suffix = data_suffix(name)
        if self.field is not None:
            return _json_texts(lines, name, self.field)
        if self.column is not None:
            if suffix in (".jsonl", ".ndjson"):
                return _json_texts(lines, name, str(self.column))
            return _column_texts(lines, name, self.column)
        if self.conllu or suffix == ".conllu":
            return ((one.line, one.words) for one in conllu_sentences(lines, name))
        if suffix in (".jsonl", ".ndjson", ".csv", ".tsv"):
            problem = f"{suffix} is not a text with one sentence per line; name what to read with "
            raise InputError(f"{problem}--column", file=shown(name, 120))
        return lines


LINES = Records()


def data_suffix(name: str) -> str:
    """The suffix of a file in lower case, without that of its compression."""
    path = PurePath(name.lower())
    return path.with_suffix("").suffix if path.suffix in _COMPRESSED else path.suffix


def _refusal(name: str) -> Callable[[int, str], InputError]:
    def refuse(number: int, problem: str) -> InputError:
        return InputError(problem, file=shown(name, 120), line=number)

    return refuse


# --------------------------------------------------------------------------- JSON lines


def json_lines(lines: Lines, name: str) -> Iterator[tuple[int, Any]]:
    """Parse each line that is not blank.

    Raises:
        InputError: a line is not JSON.
    """
    for number, line in lines:
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            problem = f"not JSON: {shown(error, 60)}; write one object per line"
            raise InputError(problem, file=shown(name, 120), line=number) from None


def _json_texts(lines: Lines, name: str, field: str) -> Iterator[tuple[int, Text]]:
    refuse, label = _refusal(name), f"'{shown(field, 40)}'"
    for number, record in json_lines(lines, name):
        if not isinstance(record, dict) or field not in record:
            keys = ", ".join(map(repr, list(record)[:6])) if isinstance(record, dict) else "no keys"
            raise refuse(number, f"no field {label}; there are {shown(keys, 100)}")
        value = record[field]
        if value is None or isinstance(value, str):
            yield number, value or ""
        elif isinstance(value, list) and all(isinstance(token, str) for token in value):
            yield number, tuple(value)
        else:
            raise refuse(number, f"{label} is neither a text nor a list of tokens; correct it")


# --------------------------------------------------------------------------- tables


def table_rows(lines: Lines, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV or TSV file that are not empty, each with its first line's number.

    Raises:
        InputError: a cell is too long, or its quotes do not end.
    """
    start, first = next(lines, (1, ""))
    suffix = data_suffix(name)
    # Spreadsheets of some countries write semicolons.
    mark = "\t" if suffix in (".tsv", ".tab") else max(",;\t", key=first.count)
    # Quotes are letters in most files with tabs: data sets of sentences are full of them.
    plain = mark == "\t" and not first.startswith('"')
    quoting: Literal[0, 3] = csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL
    # A cell of a CSV file may have line breaks, so that a row has several lines. Their numbers are
    # kept: some lines of the file may have been left out.
    numbers: list[int] = []

    def with_breaks() -> Iterator[str]:
        for number, line in chain([(start, first)], lines):
            numbers.append(number)
            yield f"{line}\n"

    rows = csv.reader(with_breaks(), delimiter=mark, quoting=quoting, strict=True)
    try:
        for row in rows:
            if row:
                yield numbers[0], row
            numbers.clear()
    except csv.Error as error:
        problem = f"not a table: {shown(error, 60)}; check the quotes"
        if "limit" in str(error):
            problem = (
                f"a cell has more than the {csv.field_size_limit()} characters allowed; shorten "
                "it, or close its quotes"
            )
        raise InputError(problem, file=shown(name, 120), line=numbers[0]) from None


def _column_texts(lines: Lines, name: str, column: str | int) -> Lines:
    refuse, rows = _refusal(name), table_rows(lines, name)
    if isinstance(column, int):
        place = column - 1
    else:
        header = next(rows, (1, []))[1]
        if column not in header:
            names = ", ".join(map(repr, header[:8]))
            raise refuse(1, f"no column '{shown(column, 40)}'; there are {shown(names, 120)}")
        place = header.index(column)
    for number, row in rows:
        if place >= len(row):
            raise refuse(number, f"{len(row)} columns, expected {place + 1} at least")
        yield number, row[place]

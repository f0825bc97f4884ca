"""Files that are more than lines of text: JSON lines, tables and CoNLL, one text per record."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

from elmore.base.messages import shown
from elmore.errors import InputError
from elmore.limits import LIMITS

# A text that is still to be split, or the tokens of a sentence.
Text: TypeAlias = str | Sequence[str]
Lines: TypeAlias = Iterator[tuple[int, str]]

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
# Python's own limit, 131,072 characters, is shorter than many documents.
csv.field_size_limit(max(csv.field_size_limit(), LIMITS.text_line_bytes))


def as_text(text: Text) -> str:
    """A text, or tokens with spaces between them."""
    return text if isinstance(text, str) else " ".join(text)


def record_texts(
    lines: Lines, name: str, column: str | int | None = None, conllu: bool = False
) -> Iterator[tuple[int, Text]]:
    """Yield the text or tokens of each record, and the number of its first line.

    Args:
        lines: of a file, with their numbers.
        name: of the file; its suffix tells JSON lines, CSV, TSV and CoNLL-U.
        column: where a text is, as in `text.reading.Reading`; None for one on each line. In JSON
            lines null is an empty text.
        conllu: CoNLL-U: the words of column 2. As in a treebank's syntax, contractions are taken
            apart: *du* is *de le*.

    Raises:
        InputError: a record without such a text, or a file of records read as lines.
    """
    suffix = data_suffix(name)
    if column is not None:
        if suffix in (".jsonl", ".ndjson"):
            return _json_texts(lines, name, str(column))
        return _column_texts(lines, name, column)
    if conllu or suffix == ".conllu":
        return ((one.line, one.words) for one in conllu_sentences(lines, name))
    if suffix in (".jsonl", ".ndjson", ".csv", ".tsv"):
        problem = f"{suffix} is not a text with one sentence per line; name what to read with "
        raise InputError(f"{problem}--column", file=shown(name, 120))
    return lines


def record_values(
    lines: Lines, name: str, fields: Sequence[str]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield what some fields of each record hold, as texts, and its first line's number.

    Args:
        lines: of a file, with their numbers.
        name: of the file; its suffix tells JSON lines from tables.
        fields: keys or names of columns; a record may lack some.

    Raises:
        InputError: the file has no fields, or no column of such a name.
    """
    if data_suffix(name) in (".jsonl", ".ndjson"):
        for number, record in json_lines(lines, name):
            given = record if isinstance(record, dict) else {}
            found = (given.get(one) for one in fields)
            yield number, tuple("" if one is None else _one_line(one) for one in found)
        return
    rows = table_rows(lines, name) if data_suffix(name) in (".csv", ".tsv") else iter(())
    header = next(rows, (1, []))[1]
    for one in fields:
        if one not in header:
            problem = f"no field '{shown(one, 40)}'; use JSON lines or a table"
            raise InputError(problem, file=shown(name, 120), line=1)
    places = [header.index(one) for one in fields]
    for number, row in rows:
        yield number, tuple(_one_line(row[k]) if k < len(row) else "" for k in places)


def _one_line(value: object) -> str:
    return " ".join((value if isinstance(value, str) else json.dumps(value)).split())


def data_suffix(name: str) -> str:
    """The suffix of a file in lower case, without that of its compression."""
    path = PurePath(name.lower())
    return path.with_suffix("").suffix if path.suffix in _COMPRESSED else path.suffix


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
    label = f"'{shown(field, 40)}'"
    for number, record in json_lines(lines, name):
        if not isinstance(record, dict) or field not in record:
            keys = ", ".join(map(repr, list(record)[:6])) if isinstance(record, dict) else "no keys"
            problem = f"no field {label}; there are {shown(keys, 100)}"
            raise InputError(problem, file=shown(name, 120), line=number)
        value = record[field]
        if value is None or isinstance(value, str):
            yield number, value or ""
        elif isinstance(value, list) and all(isinstance(token, str) for token in value):
            yield number, tuple(value)
        else:
            problem = f"{label} is neither a text nor a list of tokens; correct it"
            raise InputError(problem, file=shown(name, 120), line=number)


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
        raise InputError(problem, file=shown(name, 120), line=numbers[0]) from None


def _column_texts(lines: Lines, name: str, column: str | int) -> Lines:
    rows = table_rows(lines, name)
    if isinstance(column, int):
        place = column - 1
    else:
        header = next(rows, (1, []))[1]
        if column not in header:
            names = ", ".join(map(repr, header[:8]))
            problem = f"no column '{shown(column, 40)}'; there are {shown(names, 120)}"
            raise InputError(problem, file=shown(name, 120), line=1)
        place = header.index(column)
    for number, row in rows:
        if place >= len(row):
            problem = f"{len(row)} columns, expected {place + 1} at least"
            raise InputError(problem, file=shown(name, 120), line=number)
        yield number, row[place]


# --------------------------------------------------------------------------- CoNLL

_CONLLU = 10
_COLUMN = re.compile(r"[^ \t\r\n]+")
# CoNLL-2003 opens each document with this word.
_DOCUMENT = "-DOCSTART-"
# After the last line: a file need not end with a blank one.
_END = (0, "")


def split_columns(line: str) -> list[str]:
    """Split at spaces and tabs only: str.split() also splits at U+00A0, which is part of a word."""
    return _COLUMN.findall(line)


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """The syntactic words of a sentence of CoNLL-U.

    Attributes:
        words: the forms.
        upos: the universal tag of each.
        xpos: the language's own tag of each; "_" where there is none.
        feats: the morphological features of each; "_" where there are none.
        line: the number of its first line with a word.
    """

    words: tuple[str, ...]
    upos: tuple[str, ...]
    xpos: tuple[str, ...]
    feats: tuple[str, ...] = ()
    line: int = field(default=0, compare=False, repr=False)


def conllu_sentences(lines: Iterable[tuple[int, str]], name: str) -> Iterator[TaggedSentence]:
    """Yield the sentences of CoNLL-U, the format of Universal Dependencies.

    Surface tokens of contractions (`7-8`) and empty nodes (`8.1`) are left out.

    Args:
        lines: of a file, with their numbers.
        name: of the file, for messages.

    Raises:
        InputError: a line without ten columns, with a wrong id or without a form.
    """
    rows: list[list[str]] = []
    start = 0
    for number, line in chain(lines, [_END]):
        if not line.strip():
            if rows:
                words, upos, xpos, feats = zip(*rows, strict=True)
                yield TaggedSentence(words, upos, xpos, feats, start)
            rows = []
        elif not line.startswith("#"):
            columns = line.split("\t")
            problem = _conllu_problem(columns, len(rows) + 1)
            if problem is not None:
                raise InputError(problem, file=name, line=number)
            if columns[0].isdecimal():
                start = start if rows else number
                rows.append([columns[1], *columns[3:6]])


def _conllu_problem(columns: list[str], expected: int) -> str | None:
    if len(columns) != _CONLLU:
        return f"{len(columns)} columns, expected {_CONLLU}; separate CoNLL-U columns by tabs"
    word_id = columns[0]
    if "-" in word_id or "." in word_id:  # a contraction or an empty node
        return None
    if word_id != str(expected):
        return (
            f"word id '{shown(word_id, 20)}', expected {expected}; put a blank line between "
            "sentences"
        )
    return None if columns[1] else "a word without a form; write it in column 2"


def column_sentences(
    lines: Iterable[tuple[int, str]], name: str
) -> Iterator[tuple[int, list[list[str]]]]:
    """Yield the sentences of columns such as those of CoNLL-2003, the word first.

    Yields:
        the number of a sentence's first line, and one row per word. All rows have the same number
        of columns, two or more.

    Args:
        lines: of a file, with their numbers.
        name: of the file, for messages.

    Raises:
        InputError: a line has another number of columns.
    """
    rows: list[list[str]] = []
    width = start = 0
    tabs = False
    for number, line in chain(lines, [_END]):
        cells = split_columns(line)
        if not line.strip() or cells[0] == _DOCUMENT:
            if rows:
                yield start, rows
            rows = []
            continue
        # Before a sentence "#" opens a comment, unless the line looks like a row: it is a word too.
        like_a_row = "\t" in line or (not tabs and " = " not in line and len(cells) == (width or 2))
        if line.startswith("#") and not rows and not like_a_row:
            continue
        width, tabs = width or len(cells), tabs or "\t" in line
        if len(cells) != width or width < 2:
            raise InputError(
                f"{len(cells)} columns, expected {max(2, width)}; write a word, a space or tab, "
                "and its tag",
                file=name,
                line=number,
            )
        start = start if rows else number
        rows.append(cells)

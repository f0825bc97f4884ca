"""The documents of a corpus: what is known about each, and which of them are meant.

What is known comes from a table (`--metadata`), from fields of JSON lines, and from the names of
folders. It is stored once per document, not per sentence.
"""

from __future__ import annotations

import hashlib
import math
import operator
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from elmore.base.io import Errors
from elmore.base.messages import shown
from elmore.errors import ConfigError, InputError
from elmore.text.reading import numbered_lines
from elmore.text.records import data_suffix, record_values, table_rows

Mask = NDArray[np.bool_]
_CORPUS, _FILE = "corpus", "file"
_SUFFIXES = (".txt", ".jsonl", ".ndjson", ".csv", ".tsv", ".conllu")
_CONDITION = re.compile(r"\s*([^=<>!]+?)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*", re.DOTALL)
_NUMBER, _YEAR = re.compile(r"\s*-?\d+(\.\d+)?"), re.compile(r"\d{4}")
# More groups than this make no table that anyone reads; most often they are documents.
_MOST_GROUPS = 60


class Documents(msgspec.Struct):
    """The documents of a corpus, each a file or a record of one.

    Attributes:
        names: a file, or file#line for records.
        values: of each field, a text per document; empty if unknown.
        n_words: how many tokens with a letter or digit each has.
    """

    names: list[str]
    values: dict[str, list[str]]
    n_words: list[Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]]

    @property
    def consistent(self) -> bool:
        """Whether each list has one entry per document."""
        lengths = {len(self.names), len(self.n_words), *map(len, self.values.values())}
        return len(lengths) == 1

    def digest(self) -> str:
        """A digest of what is known about the documents."""
        return hashlib.sha256(msgspec.json.encode(self.values)).hexdigest()

    def joined(self, more: Documents) -> Documents:
        """These documents, followed by others."""
        both = {
            name: [
                one
                for part in (self, more)
                for one in part.values.get(name, [""] * len(part.names))
            ]
            for name in (*self.values, *(name for name in more.values if name not in self.values))
        }
        return Documents(self.names + more.names, both, self.n_words + more.n_words)

    def field(self, name: str) -> list[str]:
        """The values of a field; `file` is the name of each document.

        Raises:
            ConfigError: there is no such field.
        """
        if name == _FILE:
            return self.names
        if name not in self.values:
            known = shown(", ".join([*self.values, _FILE]), 120)
            raise ConfigError(f"the index has no field '{shown(name, 40)}'; use {known}")
        return self.values[name]

    def matching(self, condition: str) -> Mask:
        """The documents of which a condition holds, (n,).

        Args:
            condition: `genre=news`, `genre=news,letters` for either, `genre!=news`, or
                `date>=1900` with >, >=, <, <=. A number is compared with the one that a value
                starts with, so 2006 with 2006-09-25; other values by the alphabet.
        """
        match = _CONDITION.fullmatch(condition)
        if match is None:
            raise ConfigError(
                f"'{shown(condition, 60)}' is not a condition; write genre=news or date>=1900"
            )
        values, sign, asked = self.field(match[1]), match[2], match[3]
        if sign in ("=", "!="):
            wanted = {one.strip() for one in asked.split(",")}
            return np.array([(one in wanted) == (sign == "=") for one in values], bool)
        compare = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}[sign]
        if _NUMBER.fullmatch(asked):  # nothing is true of NaN
            bound = float(asked)
            return np.array([compare(_number(one, math.nan), bound) for one in values], bool)
        return np.array([one != "" and compare(one, asked) for one in values], bool)

    def groups(self, by: str, period: int | None = None) -> dict[str, Mask]:
        """The documents by the values of a field, in the order of the values.

        Args:
            by: the field. Documents without a value are in no group.
            period: make groups of so many years, by the first four digits in a row of each value.

        Raises:
            ConfigError: no document has a value, or there are too many groups.
        """
        if period is not None and period < 1:
            raise ConfigError(f"period={period} joins no years; use 1 or more")
        labels = self.field(by)
        if period is not None:
            years = [_YEAR.search(one) for one in labels]
            starts = [None if y is None else int(y[0]) // period * period for y in years]
            last = period - 1
            labels = [
                "" if s is None else f"{s:04}-{s + last:04}" if last else f"{s:04}" for s in starts
            ]
        # Numbers by their value, everything else after them.
        found = sorted(set(labels) - {""}, key=lambda one: (_number(one, math.inf), one))
        if not found:
            raise ConfigError(f"no document has a {'year' if period else 'value'} in '{by}'")
        if len(found) > _MOST_GROUPS:
            raise ConfigError(
                f"'{by}' has {len(found)} values; group it with --period (period=), select some "
                "with --where, or use another field"
            )
        every = np.array(labels, dtype=object)
        return {label: every == label for label in found}


def _number(value: str, default: float) -> float:
    """The number that a value starts with."""
    number = _NUMBER.match(value)
    return default if number is None else float(number[0])


def corpus_files(inputs: Sequence[str | Path]) -> list[tuple[Path, dict[str, str]]]:
    """The files of a corpus, with what the names of their folders say.

    Args:
        inputs: files, and folders, which stand for all text files below them.

    Returns:
        each file; with `corpus`, the folder that was named, and, if it is further below, `folder`.
    """
    found: list[tuple[Path, dict[str, str]]] = []
    for path in map(Path, inputs):
        if not path.is_dir():
            found.append((path, {}))
            continue
        visible = [
            (file, below)
            for below in sorted(file.relative_to(path) for file in path.rglob("*"))
            if data_suffix(below.name) in _SUFFIXES and not any(p[0] == "." for p in below.parts)
            if (file := path / below).is_file()
        ]
        if not visible:
            raise InputError(f"'{shown(path, 120)}' holds no text files ({', '.join(_SUFFIXES)})")
        corpus = {_CORPUS: path.resolve().name}
        for file, below in visible:
            folder = below.parent.as_posix()
            found.append((file, corpus if folder == "." else {**corpus, "folder": folder}))
    return found


def read_metadata(path: Path) -> dict[str, dict[str, str]]:
    """A table with a header whose first column names files: what it says about each.

    A file may be named as it was given, by its name, or by its name without the suffix.
    """
    rows = table_rows(numbered_lines(path), str(path))
    header = next(rows, (1, []))[1]
    if len(header) < 2 or len(set(header)) < len(header) or _FILE in header[1:]:
        raise InputError(
            "expected a first line with different names: file, then date, genre, ...",
            file=shown(path, 120),
            line=1,
        )
    found: dict[str, dict[str, str]] = {}
    for number, row in rows:
        if len(row) != len(header):
            problem = f"{len(row)} columns, expected {len(header)}"
            raise InputError(problem, file=shown(path, 120), line=number)
        if row[0] in found:
            problem = f"a second line for '{shown(row[0], 60)}'; keep one"
            raise InputError(problem, file=shown(path, 120), line=number)
        found[row[0]] = dict(zip(header[1:], map(str.strip, row[1:]), strict=True))
    return found


def read_documents(
    files: Sequence[tuple[Path, Mapping[str, str]]],
    *,
    metadata: Path | None = None,
    fields: Sequence[str] = (),
    errors: Errors = "strict",
) -> tuple[Documents, list[dict[int, int] | int], list[str]]:
    """Find out what is known about the documents of a corpus.

    Args:
        files: of `corpus_files`.
        metadata: a table with a line per file.
        fields: keys of JSON lines or columns of a table that describe each record.
        errors: what to do with their lines that are not UTF-8.

    Returns:
        the documents; for each file the number of its document, or of those of its records by
        line; the files that the table lacks.
    """
    table = {} if metadata is None else read_metadata(metadata)
    every: list[tuple[str, dict[str, str]]] = []
    where: list[dict[int, int] | int] = []
    unknown: list[str] = []
    for path, folders in files:
        keys = [key for key in (str(path), path.name, path.name.partition(".")[0]) if key in table]
        known = {**folders, **(table[keys[0]] if keys else {})}
        unknown += [str(path)] * (metadata is not None and not keys)
        if not fields:
            where.append(len(every))
            every.append((str(path), known))
            continue
        # Records that say the same about themselves are one document.
        same: dict[tuple[str, ...], int] = {}
        lines: dict[int, int] = {}
        for line, values in record_values(numbered_lines(path, errors), str(path), fields):
            if values not in same:
                same[values] = len(every)
                every.append((f"{path}#{line}", known | dict(zip(fields, values, strict=True))))
            lines[line] = same[values]
        where.append(lines)
    names = dict.fromkeys(key for _, known in every for key in known)
    columns = {name: [known.get(name, "") for _, known in every] for name in names}
    return Documents([name for name, _ in every], columns, [0] * len(every)), where, unknown

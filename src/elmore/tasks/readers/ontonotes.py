"""CoNLL-2012 columns: PropBank predicates with their arguments, and clusters of mentions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmore._messages import shown
from elmore.errors import InputError
from elmore.tasks.tags import Span
from elmore.text.reading import numbered_lines, split_columns

__all__ = ["Document", "Mention", "Predicate", "Sentence2012", "read_documents"]

_FIXED = 12  # eleven columns, predicates between, and the clusters last
_BEGIN, _END = "#begin document", "#end document"
_MENTION = re.compile(r"(\()?(\d{1,18})(\))?")  # Python reads no number of 4,301 digits
_ROLE = re.compile(r"(?:\(([^()*\s]+))?\*(\))?")


@dataclass(frozen=True)
class Predicate:
    """A predicate: the token that is marked, and labelled spans, V among them."""

    index: int
    arguments: tuple[Span, ...]


@dataclass(frozen=True)
class Mention:
    """A mention inside a sentence, both ends included, and the number of its cluster."""

    first: int
    last: int
    cluster: int


@dataclass(frozen=True)
class Sentence2012:
    """A sentence of a document."""

    tokens: tuple[str, ...]
    speaker: str
    predicates: tuple[Predicate, ...]
    mentions: tuple[Mention, ...]


@dataclass
class Document:
    """A document, or a part of one."""

    name: str
    sentences: list[Sentence2012] = field(default_factory=list)


def read_documents(path: Path) -> Iterator[Document]:
    """Read a file of documents, plain or packed.

    Raises:
        InputError: too few columns, brackets that do not close, labels that cross.
    """
    document: Document | None = None
    rows: list[tuple[int, list[str]]] = []
    for number, line in numbered_lines(path):
        if line.startswith(_BEGIN):
            if document is not None and (document.sentences or rows):
                yield _closed(document, rows, path)
            document, rows = Document(line[len(_BEGIN) :].strip()), []
        elif line.startswith(_END):
            if document is not None:
                yield _closed(document, rows, path)
            document, rows = None, []
        elif not line.strip():
            if rows and document is not None:
                document.sentences.append(_sentence(rows, path))
            rows = []
        else:
            if document is None:
                document = Document(path.name)  # a file without marks is one document
            columns = split_columns(line)
            if len(columns) < _FIXED or (rows and len(columns) != len(rows[0][1])):
                expected = len(rows[0][1]) if rows else f"{_FIXED} or more"
                raise InputError(
                    f"{len(columns)} columns, expected {expected}; is this CoNLL-2012?",
                    file=str(path),
                    line=number,
                )
            rows.append((number, columns))
    if document is not None and (document.sentences or rows):
        yield _closed(document, rows, path)


def _closed(document: Document, rows: list[tuple[int, list[str]]], path: Path) -> Document:
    if rows:
        document.sentences.append(_sentence(rows, path))
    return document


def _sentence(rows: list[tuple[int, list[str]]], path: Path) -> Sentence2012:
    columns = [row for _, row in rows]
    lines = [number for number, _ in rows]
    where: list[dict[str, Any]] = [{"file": str(path), "line": number} for number in lines]
    marked = [place for place, row in enumerate(columns) if row[7] != "-"]
    n_predicates = len(columns[0]) - _FIXED
    predicates = []
    for k in range(n_predicates):
        arguments = _roles([row[_FIXED - 1 + k] for row in columns], where)
        verb = next((span.first for span in arguments if span.label == "V"), None)
        if verb is None:
            verb = marked[k] if k < len(marked) else None
        if verb is None:
            raise InputError(
                f"predicate {k + 1} has neither a span V nor a roleset; mark its token", **where[0]
            )
        predicates.append(Predicate(verb, arguments))
    return Sentence2012(
        tokens=tuple(row[3] for row in columns),
        speaker=columns[0][9],
        predicates=tuple(predicates),
        mentions=_mentions([row[-1] for row in columns], where),
    )


def _roles(cells: list[str], where: list[dict[str, Any]]) -> tuple[Span, ...]:
    spans: list[Span] = []
    opened: tuple[str, int] | None = None
    for place, cell in enumerate(cells):
        match = _ROLE.fullmatch(cell)
        if match is None:
            raise InputError(
                f"'{shown(cell, 40)}' is no bracket such as (ARG0*, * or *)", **where[place]
            )
        label, closes = match.groups()
        if label is not None:
            if opened is not None:
                raise InputError(f"({label} opens inside ({opened[0]}; close it", **where[place])
            opened = (label, place)
        if closes:
            if opened is None:
                raise InputError("a bracket closes that was not opened; correct it", **where[place])
            spans.append(Span(opened[0], opened[1], place))
            opened = None
    if opened is not None:
        raise InputError(f"({opened[0]} does not close; correct it", **where[opened[1]])
    return tuple(spans)


def _mentions(cells: list[str], where: list[dict[str, Any]]) -> tuple[Mention, ...]:
    found: list[Mention] = []
    opened: dict[int, list[int]] = {}
    for place, cell in enumerate(cells):
        if cell in ("-", "_", "*"):
            continue
        for part in cell.split("|"):
            match = _MENTION.fullmatch(part)
            if match is None or not (match[1] or match[3]):
                raise InputError(
                    f"'{shown(cell, 40)}' is no cluster such as (3, 3), (3) or -", **where[place]
                )
            cluster = int(match[2])
            if match[1]:
                opened.setdefault(cluster, []).append(place)
            if match[3]:
                if not opened.get(cluster):
                    raise InputError(f"{cluster}) closes but was not opened", **where[place])
                found.append(Mention(opened[cluster].pop(), place, cluster))
    for cluster, places in opened.items():
        if places:
            raise InputError(f"({cluster} does not close in its sentence", **where[places[-1]])
    return tuple(found)

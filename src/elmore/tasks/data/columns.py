"""Files that more than one task or analysis reads: CoNLL-U, CoNLL-2012, pairs, treebank tokens.

Reading them needs no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from elmore.base.messages import shown
from elmore.errors import InputError
from elmore.tasks.data.tags import Span
from elmore.text.reading import numbered_lines
from elmore.text.records import TaggedSentence, conllu_sentences, split_columns

TagKind = Literal["upos", "xpos"]
_BEGIN, _END = "#begin document", "#end document"
# CoNLL-2012 has eleven fixed columns, then one per predicate, and the clusters last.
_FIXED = 12
_MENTION = re.compile(r"(\()?(\d{1,18})(\))?")  # int() refuses numbers of 4,301 digits
_ROLE = re.compile(r"(?:\(([^()*\s]+))?\*(\))?")
_ESCAPES = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
}


def read_conllu(path: Path, *, limit: int | None = None) -> list[TaggedSentence]:
    """Read CoNLL-U, the format of Universal Dependencies, or its first `limit` sentences.

    Raises:
        InputError: as in `conllu_sentences`, or there is no sentence.
    """
    found = list(islice(conllu_sentences(numbered_lines(path), str(path)), limit))
    if not found:
        raise InputError("there is no sentence; is it CoNLL-U?", file=str(path))
    return found


# ------------------------------------------------------- predicates and clusters (2012, OntoNotes)


@dataclass(frozen=True)
class Predicate:
    """A predicate: the token that is marked, and labelled spans, V among them."""

    index: int
    arguments: tuple[Span, ...]

    @property
    def verb(self) -> Span:
        """The span V, or the marked token where the arguments have none."""
        marked = Span("V", self.index, self.index)
        return next((span for span in self.arguments if span.label == "V"), marked)


@dataclass(frozen=True)
class Sentence2012:
    """A sentence of a document."""

    tokens: tuple[str, ...]
    speaker: str
    predicates: tuple[Predicate, ...]
    mentions: tuple[Span, ...]  # labelled with the numbers of their clusters


def read_documents(path: Path) -> Iterator[list[Sentence2012]]:
    """Read CoNLL-2012 columns: PropBank predicates with their arguments, clusters of mentions.

    Yields the sentences of a document, or of one of the parts that long ones are split into.

    Raises:
        InputError: too few columns, brackets that do not close, labels that cross.
    """
    document: list[Sentence2012] | None = None
    rows: list[tuple[int, list[str]]] = []

    def end_sentence() -> None:
        if rows and document is not None:
            document.append(_sentence(rows, path))
        rows.clear()

    for number, line in numbered_lines(path):
        if line.startswith((_BEGIN, _END)):
            end_sentence()
            # A document that was ended may be empty, one that was merely followed by another not.
            if document is not None and (document or line.startswith(_END)):
                yield document
            document = [] if line.startswith(_BEGIN) else None
        elif not line.strip():
            end_sentence()
        else:
            if document is None:
                document = []  # a file without marks is one document
            columns = split_columns(line)
            if len(columns) < _FIXED or (rows and len(columns) != len(rows[0][1])):
                expected = len(rows[0][1]) if rows else f"{_FIXED} or more"
                raise InputError(
                    f"{len(columns)} columns, expected {expected}; is this CoNLL-2012?",
                    file=str(path),
                    line=number,
                )
            rows.append((number, columns))
    end_sentence()
    if document:
        yield document


def _sentence(rows: list[tuple[int, list[str]]], path: Path) -> Sentence2012:
    columns = [row for _, row in rows]
    where: list[dict[str, Any]] = [{"file": str(path), "line": number} for number, _ in rows]
    marked = [place for place, row in enumerate(columns) if row[7] != "-"]
    predicates = []
    for k in range(len(columns[0]) - _FIXED):
        arguments = _roles([row[_FIXED - 1 + k] for row in columns], where)
        verb = next((span.first for span in arguments if span.label == "V"), None)
        # Some releases give no V span; then the k-th roleset says which token it is.
        if verb is None and k < len(marked):
            verb = marked[k]
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
                f"'{shown(cell, 40)}' is not a bracket such as (ARG0*, * or *)", **where[place]
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


def _mentions(cells: list[str], where: list[dict[str, Any]]) -> tuple[Span, ...]:
    found: list[Span] = []
    opened: dict[str, list[int]] = {}
    for place, cell in enumerate(cells):
        if cell in ("-", "_", "*"):
            continue
        for part in cell.split("|"):
            match = _MENTION.fullmatch(part)
            if match is None or not (match[1] or match[3]):
                raise InputError(
                    f"'{shown(cell, 40)}' is not a cluster such as (3, 3), (3) or -", **where[place]
                )
            cluster = str(int(match[2]))
            if match[1]:
                opened.setdefault(cluster, []).append(place)
            if match[3]:
                if not opened.get(cluster):
                    raise InputError(f"{cluster}) closes but was not opened", **where[place])
                # Mentions of one cluster may nest: the one that opened last closes first.
                found.append(Span(cluster, opened[cluster].pop(), place))
    for cluster, places in opened.items():
        if places:
            raise InputError(f"({cluster} does not close in its sentence", **where[places[-1]])
    return tuple(found)


# ------------------------------------------------------------------------------ pairs and tokens


def split_pairs(
    lines: Iterable[tuple[int, str]], file: str, expected: str
) -> Iterator[tuple[str, str]]:
    """Split the numbered lines of a file at their tab; blank lines are left out."""
    for number, line in lines:
        if not line.strip():
            continue
        parts = line.split("\t")
        if len(parts) != 2:
            name = "stdin" if file == "-" else file
            raise InputError(f"expected {expected}", file=name, line=number)
        yield parts[0], parts[1]


def unescape(token: str) -> str:
    """Undo the Penn Treebank's escapes of brackets, quotes and slashes."""
    return _ESCAPES.get(token, token.replace("\\/", "/").replace("\\*", "*"))

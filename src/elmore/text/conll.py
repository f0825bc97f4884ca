"""CoNLL-U and CoNLL columns: one word per line, and a blank line after each sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from elmore.base.messages import shown
from elmore.errors import InputError

__all__ = ["TaggedSentence", "column_sentences", "conllu_sentences", "split_columns"]

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

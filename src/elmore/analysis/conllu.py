"""CoNLL-U, the files of Universal Dependencies: words and their tags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elmore.errors import InputError
from elmore.text.reading import numbered_lines

__all__ = ["TagKind", "TaggedSentence", "read_conllu"]

TagKind = Literal["upos", "xpos"]
_COLUMNS = 10


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """The syntactic words of a sentence.

    Attributes:
        words: the forms.
        upos: the universal tag of each.
        xpos: the language's own tag of each; "_" where there is none.
    """

    words: tuple[str, ...]
    upos: tuple[str, ...]
    xpos: tuple[str, ...]


def read_conllu(path: Path, *, limit: int | None = None) -> list[TaggedSentence]:
    """Read a file; surface tokens of contractions (`7-8`) and empty nodes (`8.1`) are left out.

    Args:
        path: the file, plain or packed.
        limit: stop after so many sentences.

    Raises:
        InputError: a line has not ten columns or no proper id; there is no sentence.
    """
    sentences: list[TaggedSentence] = []
    rows: list[tuple[str, str, str]] = []

    def finish() -> None:
        if rows:
            words, upos, xpos = zip(*rows, strict=True)
            sentences.append(TaggedSentence(words, upos, xpos))
            rows.clear()

    for number, line in numbered_lines(path):
        if not line.strip():
            finish()
            if limit is not None and len(sentences) >= limit:
                break
        elif not line.startswith("#"):
            row = _row(line, path, number, len(rows) + 1)
            if row is not None:
                rows.append(row)
    finish()
    if not sentences:
        raise InputError("there is no sentence; is it CoNLL-U?", file=str(path))
    return sentences[:limit]


def _row(line: str, path: Path, number: int, expected: int) -> tuple[str, str, str] | None:
    columns = line.split("\t")
    if len(columns) != _COLUMNS:
        raise InputError(
            f"{len(columns)} columns, expected {_COLUMNS}; separate CoNLL-U columns by tabs",
            file=str(path),
            line=number,
        )
    word_id, form, _, upos, xpos = columns[:5]
    if "-" in word_id or "." in word_id:
        return None
    if word_id != str(expected):
        raise InputError(
            f"word id '{word_id[:20]}', expected {expected}; put a blank line between sentences",
            file=str(path),
            line=number,
        )
    if not form:
        raise InputError("a word without a form; write it in column 2", file=str(path), line=number)
    return form, upos, xpos

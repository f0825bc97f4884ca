"""The Stanford Sentiment Treebank: a tree a line, a label from 0 to 4 at every node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from elmore._messages import shown
from elmore.errors import InputError
from elmore.text.reading import numbered_lines

__all__ = ["LabelledPhrase", "read_trees", "unescape"]

# Tokens of a phrase and its label.
LabelledPhrase = tuple[tuple[str, ...], int]

# Not \s, which takes the U+00A0 of "8 1/2" for a space.
_PIECE = re.compile(r"\(|\)|[^() \t\r]+")
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


def read_trees(path: Path) -> Iterator[list[LabelledPhrase]]:
    """Read a file of trees, plain or packed.

    Yields:
        all labelled phrases of a sentence; the sentence itself comes first.

    Raises:
        InputError: a line is no tree.
    """
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        problem = "; expected one tree such as (3 (2 It) (4 works))"
        try:
            yield _phrases(line)
        except ValueError as error:
            raise InputError(f"{error}{problem}", file=str(path), line=number) from None


def _phrases(line: str) -> list[LabelledPhrase]:
    """Walk through a tree; brackets may nest as deep as they like."""
    pieces = _PIECE.findall(line)
    tokens: list[str] = []
    open_nodes: list[tuple[int, int, int]] = []  # label, first token, place in the result
    result: list[LabelledPhrase] = []
    at = 0
    while at < len(pieces):
        piece = pieces[at]
        if piece == "(":
            label = pieces[at + 1] if at + 1 < len(pieces) else ""
            if label not in ("0", "1", "2", "3", "4"):
                raise ValueError(f"the label '{shown(label, 20)}' is none of 0 to 4")
            if result and not open_nodes:
                raise ValueError("there is a second tree on the line")
            open_nodes.append((int(label), len(tokens), len(result)))
            result.append(((), int(label)))
            at += 2
            continue
        if not open_nodes:
            raise ValueError(f"'{shown(piece, 20)}' stands outside of the brackets")
        if piece == ")":
            label_number, first, place = open_nodes.pop()
            if first == len(tokens):
                raise ValueError("a node has no word")
            result[place] = (tuple(tokens[first:]), label_number)
        else:
            tokens.append(unescape(piece))
        at += 1
    if open_nodes or not result:
        raise ValueError("a bracket does not close" if open_nodes else "there is no bracket")
    return result


def unescape(token: str) -> str:
    """Undo the Penn Treebank's escapes of brackets, quotes and slashes."""
    return _ESCAPES.get(token, token.replace("\\/", "/").replace("\\*", "*"))

"""Pairs of sentences with a label: SNLI's own jsonl, or tab-separated columns with a header."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elmore._messages import shown
from elmore.errors import InputError
from elmore.tasks.readers.sst import unescape
from elmore.text.reading import numbered_lines, split_columns
from elmore.text.tokenizer import tokenize

__all__ = ["LABELS", "Pair", "read_pairs"]

LABELS = ("entailment", "neutral", "contradiction")
# Tokens of premise and hypothesis, and the label.
Pair = tuple[tuple[str, ...], tuple[str, ...], str]
_FIELDS = ("sentence1", "sentence2", "gold_label")
_NO_LABEL = "-"


def read_pairs(path: Path) -> Iterator[Pair]:
    """Read pairs, plain or packed; those on whose label the annotators disagreed are left out.

    Tokens come from the bracketed parse where a line has one, else from our tokenizer.

    Raises:
        InputError: a line is neither, or has an unknown label.
    """
    header: list[str] | None = None
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        where: dict[str, Any] = {"file": str(path), "line": number}
        if line.startswith("{"):
            fields = _from_json(line, where)
        elif header is None:
            header = line.split("\t")
            if not set(_FIELDS) <= set(header):
                raise InputError(
                    "neither JSON nor a header with sentence1, sentence2 and gold_label; convert "
                    "the file",
                    **where,
                )
            continue
        else:
            values = line.split("\t")
            if len(values) != len(header):
                raise InputError(
                    f"{len(values)} columns, expected {len(header)}; separate columns by one tab",
                    **where,
                )
            fields = dict(zip(header, values, strict=True))
        label = fields["gold_label"]
        if label == _NO_LABEL:
            continue
        if label not in LABELS:
            raise InputError(
                f"the label '{shown(label, 30)}' is none of {', '.join(LABELS)}; correct it",
                **where,
            )
        yield _tokens(fields, "sentence1"), _tokens(fields, "sentence2"), label


def _from_json(line: str, where: dict[str, Any]) -> dict[str, str]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError("this is no JSON; is the line cut off?", **where) from None
    for field in _FIELDS:
        if not isinstance(value.get(field), str):
            raise InputError(f"there is no text {field!r}; add it", **where)
    return {key: text for key, text in value.items() if isinstance(text, str)}


def _tokens(fields: dict[str, str], name: str) -> tuple[str, ...]:
    parse = fields.get(f"{name}_binary_parse", "")
    if parse:
        return tuple(unescape(word) for word in split_columns(re.sub(r"[()]", " ", parse)))
    return tokenize(fields[name]).tokens

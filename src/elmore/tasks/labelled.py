"""Labelled data as people have it: CSV, JSON lines, CoNLL columns, folders, lists, data frames.

Every error names the file, the line and the column. Reading needs no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from elmore._messages import shown
from elmore.errors import ConfigError, InputError
from elmore.tasks.columns import read_conllu
from elmore.tasks.tags import is_tag
from elmore.text.conll import column_sentences
from elmore.text.reading import json_records, numbered_lines
from elmore.text.records import data_suffix, table_rows

__all__ = [
    "Columns",
    "LabelledText",
    "TagExample",
    "is_span_scheme",
    "label_names",
    "label_table",
    "read_columns",
    "read_texts",
    "read_tokens",
    "split_held_out",
]

Item = TypeVar("Item")

# Names of columns that need not be named, in the order of preference.
_TEXT = ("text", "sentence", "review", "content", "comment", "message", "document", "body", "title")
_LABEL = ("label", "labels", "class", "category", "target", "sentiment", "score", "rating", "y")
_TOKENS = ("tokens", "words")
_TOKEN = ("token", "word", "form")
_TAGS = ("tags", "ner_tags", "pos_tags", "labels", "upos", "label")
_TAG = ("tag", "label", "ner", "pos", "upos")
_SENTENCE = ("sentence", "sentence_id", "sentence #", "sent_id", "sent")
_TABLES = (".csv", ".tsv", ".tab")
# Between the parts of a tag that is read from two columns.
JOINED = "+"


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns to read; None for the usual names.

    Attributes:
        text: of the texts, or of the tokens.
        label: of the labels, or of the tags: a name; for CoNLL columns also a number from 1; for
            CoNLL-U upos, xpos, feats, or two of them with a + between.
        separator: what separates several labels in one cell.
    """

    text: str | None = None
    label: str | None = None
    separator: str | None = None


@dataclass(frozen=True)
class LabelledText:
    """A text, its label or labels as the data has them, and where it is."""

    text: str
    label: Any
    where: str = ""


@dataclass(frozen=True)
class TagExample:
    """A sentence and one tag per token, and where it was read."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...] = ()
    where: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class _Row:
    """A row of a table: its cells by name, and where it is."""

    cells: Mapping[str, Any]
    file: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def error(self, problem: str) -> InputError:
        return InputError(problem, file=self.file, line=self.line)


# --------------------------------------------------------------------- texts with labels


def read_texts(data: Any, columns: Columns, *, labelled: bool = True) -> list[LabelledText]:
    """Read texts and their labels.

    Args:
        data: a file (.csv, .tsv, .jsonl), a folder with one folder of texts per label, a pandas
            frame, or a `datasets.Dataset`.
        columns: which columns.
        labelled: whether rows must have labels.

    Raises:
        InputError: naming the file, line and column at fault.
    """
    if isinstance(data, str | Path) and Path(data).is_dir():
        return _read_folder(Path(data))
    rows = list(_table(data))
    if not rows:
        raise InputError("there is no row below the header", file=_name(data))
    text = _find(rows[0], columns.text, _TEXT, "text")
    if not labelled:
        return [LabelledText(_text_cell(row, text), None, row.where) for row in rows]
    label = _find(rows[0], columns.label, _LABEL, "label", other=text)
    return [LabelledText(_text_cell(r, text), _label_cell(r, label), r.where) for r in rows]


def _read_folder(path: Path) -> list[LabelledText]:
    """Read one folder of text files per label."""
    found: list[LabelledText] = []
    for folder in sorted(place for place in path.iterdir() if place.is_dir()):
        for file in sorted(place for place in folder.iterdir() if place.is_file()):
            text = "\n".join(line for _, line in numbered_lines(file))
            if not text.strip():
                raise InputError("the file is empty; delete it", file=str(file))
            found.append(LabelledText(text, folder.name, str(file)))
    if not found:
        raise InputError(
            "there is no text; make one folder per label, with one text file per example",
            file=str(path),
        )
    return found


def _text_cell(row: _Row, column: str) -> str:
    value = row.cells.get(column)
    if not isinstance(value, str):
        raise row.error(f"column '{shown(column, 40)}' holds {_kind(value)}, not a text")
    if not value.strip():
        raise row.error(f"column '{shown(column, 40)}' is empty; fill it or delete the row")
    return value


def _label_cell(row: _Row, column: str) -> Any:
    value = row.cells.get(column)
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return tuple(value)
    if value is None or (isinstance(value, str) and not value.strip()) or value != value:
        raise row.error(f"column '{shown(column, 40)}' has no label; fill it or delete the row")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        if isinstance(value, bool):
            return str(value).lower()
        raise row.error(f"column '{shown(column, 40)}' holds {_kind(value)}, not a label")
    return value.strip() if isinstance(value, str) else value


# --------------------------------------------------------------------- tokens with tags


def read_tokens(data: Any, columns: Columns) -> list[TagExample]:
    """Read sentences with one tag per token.

    Args:
        data: CoNLL columns, CoNLL-U (.conllu), .jsonl with a list of tokens and one of tags per
            line, .csv or .tsv with one token per row, a pandas frame or a `datasets.Dataset`.
        columns: which columns.

    Raises:
        InputError: naming the file, line and column at fault.
    """
    suffix = _suffix(data)
    if suffix == ".conllu":
        return _read_conllu(Path(data), columns.label or "upos")
    if suffix in (".csv", ".tsv", ".jsonl", ".ndjson", ""):
        rows = list(_table(data))
        if not rows:
            raise InputError("there is no row below the header", file=_name(data))
        names = {name.lower() for name in rows[0].cells}
        if columns.text not in rows[0].cells and names & set(_TOKEN) and not names & set(_TOKENS):
            return list(_token_rows(rows, columns))
        return [_token_lists(row, columns) for row in rows]
    return read_columns(Path(data), columns.label)


def _read_conllu(path: Path, label: str) -> list[TagExample]:
    kinds = label.lower().split(JOINED)
    if not set(kinds) <= {"upos", "xpos", "feats"}:
        raise ConfigError(f"label={label!r}: CoNLL-U has upos, xpos, feats, or two as upos+xpos")
    found = []
    for sentence in read_conllu(path):
        tags = zip(*(getattr(sentence, kind) for kind in kinds), strict=True)
        joined = tuple(JOINED.join(parts) for parts in tags)
        found.append(TagExample(sentence.words, joined, f"{path}:{sentence.line}"))
    return found


def read_columns(path: Path, label: str | None = None, *, spans: bool = False) -> list[TagExample]:
    """Read one word per line, in the first column, such as CoNLL-2003.

    Args:
        path: of the file.
        label: the number of the column of the tags, from 1; by default the last.
        spans: refuse tags that do not mark spans.
    """
    if label is not None and not (label.isascii() and label.isdigit() and int(label)):
        raise ConfigError(f"label={label!r}: columns have no names here; give a number from 1")
    found = []
    for start, rows in column_sentences(numbered_lines(path), str(path)):
        if label is not None and int(label) > len(rows[0]):
            raise InputError(f"there is no column {label}", file=str(path), line=start)
        tags = tuple(row[-1 if label is None else int(label) - 1] for row in rows)
        for k, tag in enumerate(tags if spans else ()):
            if not is_tag(tag):
                raise InputError(
                    f"'{shown(tag, 40)}' is not a tag; use O or B-, I-, E-, S- (L-, U-) and a "
                    "label",
                    file=str(path),
                    line=start + k,
                )
        found.append(TagExample(tuple(row[0] for row in rows), tags, f"{path}:{start}"))
    if not found:
        raise InputError("there is no sentence; is this a file of columns?", file=str(path))
    return found


def _token_lists(row: _Row, columns: Columns) -> TagExample:
    first = _find(row, columns.text, _TOKENS, "tokens")
    second = _find(row, columns.label, _TAGS, "tags", other=first)
    tokens, tags = row.cells.get(first), row.cells.get(second)
    for name, values in ((first, tokens), (second, tags)):
        if not isinstance(values, list | tuple) or not all(isinstance(v, str) for v in values):
            raise row.error(
                f"column '{shown(name, 40)}' holds {_kind(values)}, not a list of texts"
            )
    return _sentence(tokens, tags, row.where, row.error)


def _sentence(tokens: Any, tags: Any, where: str, error: Callable[[str], InputError]) -> TagExample:
    if len(tokens) != len(tags):
        raise error(f"{len(tokens)} tokens but {len(tags)} tags; give one tag per token")
    for k, (token, tag) in enumerate(zip(tokens, tags, strict=True)):
        if not (isinstance(token, str) and isinstance(tag, str) and tag and token.strip()):
            raise error(f"token {k} has no text or no tag; fill both")
    return TagExample(tuple(tokens), tuple(tags), where)


def _token_rows(rows: Sequence[_Row], columns: Columns) -> Iterator[TagExample]:
    """Join rows of single tokens; a column or a gap of blank rows says where sentences end."""
    token = _find(rows[0], columns.text, _TOKEN, "token")
    tag = _find(rows[0], columns.label, _TAG, "tag", other=token)
    names = {name.lower(): name for name in rows[0].cells}
    number = next((names[name] for name in _SENTENCE if name in names), None)
    sentence: list[_Row] = []
    for row in rows:
        # Some files number only the first token of a sentence.
        opens = number is not None and bool(str(row.cells[number] or "").strip())
        same = sentence and number and row.cells[number] == sentence[0].cells[number]
        gap = sentence and number is None and row.line > sentence[-1].line + 1
        if sentence and ((opens and not same) or gap):
            yield _joined(sentence, token, tag)
            sentence = []
        sentence.append(row)
    yield _joined(sentence, token, tag)


def _joined(rows: Sequence[_Row], token: str, tag: str) -> TagExample:
    for row in rows:
        for name in (token, tag):
            if not str(row.cells[name] or "").strip():
                raise row.error(f"column '{shown(name, 40)}' is empty; fill it or delete the row")
    tokens, tags = ([str(row.cells[name]) for row in rows] for name in (token, tag))
    return TagExample(tuple(tokens), tuple(tags), rows[0].where)


# --------------------------------------------------------------------- tables


def _table(data: Any) -> Iterator[_Row]:
    """The rows of a file, a pandas frame or a `datasets.Dataset`."""
    if not isinstance(data, str | Path):
        return _frame(data)
    suffix, path = _suffix(data), Path(data)
    if suffix in (".jsonl", ".ndjson") or (suffix not in _TABLES and _starts(path, "{")):
        return _json_lines(path)
    return _delimited(path)


def _frame(data: Any) -> Iterator[_Row]:
    names = getattr(data, "column_names", None) or list(getattr(data, "columns", ()))
    if not names:
        raise ConfigError(
            f"{shown(repr(data), 60)} is not labelled data; pass a file, lists (X, y), a data "
            "frame or a dataset"
        )
    names = [str(name) for name in names]
    decode = _class_names(data)
    lists = [data[name] for name in names]
    for k, values in enumerate(zip(*lists, strict=True)):
        cells = {
            name: decode[name](_plain(value)) if name in decode else _plain(value)
            for name, value in zip(names, values, strict=True)
        }
        yield _Row(cells, "row", k)


def _class_names(data: Any) -> dict[str, Callable[[Any], Any]]:
    """Of a `datasets.Dataset`: what turns the numbers of its classes into their names."""
    found: dict[str, Callable[[Any], Any]] = {}
    for name, feature in (getattr(data, "features", None) or {}).items():
        one = getattr(feature, "feature", feature)
        if hasattr(one, "int2str"):

            def named(value: Any, names: Any = one) -> Any:
                if isinstance(value, list):
                    return [names.int2str(v) for v in value]
                return names.int2str(value) if isinstance(value, int) and value >= 0 else None

            found[name] = named
    return found


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy as Python's own."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _json_lines(path: Path) -> Iterator[_Row]:
    problem = "not valid JSON; write one object per line"
    for number, cells in json_records(path, lambda record: record, problem):
        if not isinstance(cells, dict):
            raise InputError(
                f'{_kind(cells)}, not an object such as {{"text": …, "label": …}}',
                file=str(path),
                line=number,
            )
        yield _Row(cells, str(path), number)


def _delimited(path: Path) -> Iterator[_Row]:
    header: list[str] = []
    for line, cells in table_rows(numbered_lines(path), str(path)):
        if not any(cell.strip() for cell in cells):
            continue
        if not header:
            header = _header(cells, path)
        elif len(cells) != len(header):
            raise InputError(
                f"{len(cells)} columns, the header has {len(header)}; put quotes around a text "
                "that contains the separator",
                file=str(path),
                line=line,
            )
        else:
            yield _Row(dict(zip(header, cells, strict=True)), str(path), line)
    if not header:
        raise InputError("the file is empty; the first row must name the columns", file=str(path))


def _header(cells: Sequence[str], path: Path) -> list[str]:
    names = [cell.strip() for cell in cells]
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise InputError(
            f"the header has the column '{shown(twice[0], 40)}' twice; rename one",
            file=str(path),
            line=1,
        )
    return names


def _find(
    row: _Row, chosen: str | None, usual: Sequence[str], role: str, other: str | None = None
) -> str:
    """The column of a role: the chosen one, one with a usual name, or the only one left."""
    names = [name for name in row.cells if name != other]
    listed = ", ".join(f"'{shown(name, 30)}'" for name in list(row.cells)[:8])
    flag = "text" if role in ("text", "token", "tokens") else "label"
    if chosen is not None:
        if chosen in row.cells:
            return chosen
        raise row.error(f"there is no column '{shown(chosen, 40)}'; the columns are {listed}")
    lower = {name.lower(): name for name in names}
    found = next((lower[name] for name in usual if name in lower), None)
    if found is None and other is not None and len(names) == 1:
        found = names[0]
    if found is None:
        raise row.error(
            f"no column is called {usual[0]}; the columns are {listed}: name the one of the {role} "
            f"({flag}=, --{flag})"
        )
    return found


def _suffix(data: Any) -> str:
    """The suffix of a file without that of its compression; "" for what is not a file."""
    return (data_suffix(str(data)) or ".") if isinstance(data, str | Path) else ""


def _starts(path: Path, mark: str) -> bool:
    return next((line.startswith(mark) for _, line in numbered_lines(path) if line.strip()), False)


def _name(data: Any) -> str | None:
    return str(data) if isinstance(data, str | Path) else None


def _kind(value: Any) -> str:
    if value is None or value != value:
        return "nothing"
    return {str: "a text", list: "a list", dict: "an object", bool: "a truth value"}.get(
        type(value), f"a {type(value).__name__}"
    )


# --------------------------------------------------------------------- labels


def label_names(
    labels: Collection[Any], separator: str | None, kind: str = "auto"
) -> tuple[str, list[str]]:
    """What kind of labels there are ("label", "labels" or "number"), and their names in order.

    Numbers are a scale if some have a fraction or there are more than twenty; else they are names.

    Args:
        labels: of all examples.
        separator: between several labels of one example.
        kind: the user's choice; "auto" to decide by the labels.
    """
    numbers = {as_number(label) for label in labels}
    if kind == "auto":
        several = separator is not None or any(isinstance(label, tuple) for label in labels)
        scale = len(numbers) > 20 or any(n != int(n) for n in numbers if n is not None)
        kind = "labels" if several else "number" if scale and None not in numbers else "label"
    if kind == "number":
        return kind, []
    split = (
        split_labels(label, separator) if kind == "labels" else (str(label),) for label in labels
    )
    found, numeric = {name for names in split for name in names}, None not in numbers
    return kind, sorted(found, key=lambda name: (float(name) if numeric else 0.0, name))


def split_labels(label: Any, separator: str | None) -> tuple[str, ...]:
    """The labels of a cell: those of a list, or of a text with separators."""
    if isinstance(label, tuple):
        return label
    parts = str(label).split(separator) if separator else [str(label)]
    return tuple(part.strip() for part in parts if part.strip())


def as_number(label: Any) -> float | None:
    """A label as a finite number, or None."""
    try:
        number = float(label)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


def is_span_scheme(tags: Iterable[str]) -> bool:
    """Whether tags mark spans (IOB1, IOB2, BIOES, BIOUL): O, and prefixes with labels."""
    distinct = set(tags)
    return "O" in distinct and len(distinct) > 1 and all(is_tag(tag) for tag in distinct)


def label_table(counts: Mapping[str, int], held_out: Mapping[str, int]) -> list[dict[str, Any]]:
    """How often each label occurs in the training and the held-out data, most frequent first."""
    total = max(1, sum(counts.values()))
    order = sorted({*counts, *held_out}, key=lambda name: (-counts.get(name, 0), name))
    return [
        {
            "label": name,
            "training": counts.get(name, 0),
            "share": 100 * counts.get(name, 0) / total,
            "held out": held_out.get(name, 0),
        }
        for name in order
    ]


def split_held_out(
    items: Sequence[Item], key: Callable[[Item], Hashable], *, seed: int
) -> tuple[list[Item], list[Item]]:
    """Hold out every tenth item, with each key in the same proportion, the same for a seed.

    Of fewer than 100 items up to 10 are held out, of fewer than 10 none, and never more than 2,000.
    A key that occurs once stays in the training part.
    """
    n = len(items)
    wanted = 0 if n < 10 else min(max(n // 10, min(10, n // 5)), 2000)
    order = np.random.default_rng([seed, 28]).permutation(n).tolist()
    groups: dict[Hashable, list[int]] = {}
    for k in order:
        groups.setdefault(key(items[k]), []).append(k)
    # Sorted by how far along its own group an item is: any prefix has all groups in proportion.
    places = [
        ((rank + 0.5) / len(group), k)
        for group in groups.values()
        for rank, k in enumerate(group[:-1] if len(group) > 1 else [])
    ]
    chosen = {k for _, k in sorted(places)[:wanted]}
    return (
        [item for k, item in enumerate(items) if k not in chosen],
        [items[k] for k in sorted(chosen)],
    )

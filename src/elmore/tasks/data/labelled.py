"""Labelled data as people have it: CSV, JSON lines, CoNLL columns, folders, lists, data frames.

Every error names the file, the line and the column. Reading needs no torch.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elmore.base.messages import shown, spreadsheet_safe
from elmore.errors import ConfigError, InputError
from elmore.tasks.data.columns import read_conllu
from elmore.tasks.data.tags import JOINT, is_tag
from elmore.tasks.predictions import Predictor
from elmore.text.reading import numbered_lines
from elmore.text.records import Text, column_sentences, data_suffix, json_lines, table_rows

# Names of columns that need not be named, in the order of preference.
_TEXT = ("text", "sentence", "review", "content", "comment", "message", "document", "body", "title")
_LABEL = ("label", "labels", "class", "category", "target", "sentiment", "score", "rating", "y")
_TOKENS = ("tokens", "words")
_TOKEN = ("token", "word", "form")
_TAGS = ("tags", "ner_tags", "pos_tags", "labels", "upos", "label")
_TAG = ("tag", "label", "ner", "pos", "upos")
_SENTENCE = ("sentence", "sentence_id", "sentence #", "sent_id", "sent")
_JSON = (".jsonl", ".ndjson")


class LabelledText(NamedTuple):
    """A text or its tokens, its label or labels as the data has them, and where it is."""

    text: Text
    label: Any
    where: str = ""


@dataclass(frozen=True)
class TagExample:
    """A sentence and one tag per token, and where it was read."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...] = ()
    where: str = field(default="an example", compare=False, repr=False)


@dataclass(frozen=True)
class TableRow:
    """A row of a table: its cells by name, and where it is."""

    cells: Mapping[str, Any]
    file: str
    line: int

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.file}:{self.line}"

    def error(self, problem: str, column: str | None = None) -> InputError:
        """What to raise about the row, or about a cell of it."""
        named = "" if column is None else f"column '{shown(column, 40)}' "
        return InputError(f"{named}{problem}", file=self.file, line=self.line)

    def names(self) -> str:
        """The first columns, for messages."""
        return ", ".join(f"'{shown(name, 30)}'" for name in list(self.cells)[:8])

    def check(self, column: str) -> str:
        """A column that must be there."""
        if column not in self.cells:
            problem = f"there is no column '{shown(column, 40)}'; the columns are {self.names()}"
            raise self.error(problem)
        return column

    def text(self, column: str, *, empty: bool = False) -> str:
        """A cell with a text, which may be `empty` or not."""
        value = self.cells[self.check(column)]
        if not isinstance(value, str):
            raise self.error(f"holds {_kind(value)}, not a text", column)
        if not value.strip() and not empty:
            raise self.error("is empty; fill it or delete the row", column)
        return value

    def texts(self, column: str) -> tuple[str, ...]:
        """A cell with a list of texts."""
        values = self.cells.get(column)
        if not isinstance(values, list | tuple) or not all(isinstance(v, str) for v in values):
            raise self.error(f"holds {_kind(values)}, not a list of texts", column)
        return tuple(values)

    def label(self, column: str) -> Any:
        """A cell with a text, a number, or several texts."""
        value = self.cells.get(column)
        if isinstance(value, list | tuple | set) and all(isinstance(one, str) for one in value):
            return tuple(value)
        value = value.strip() if isinstance(value, str) else value
        if _is_missing(value):
            raise self.error("has no label; fill it or delete the row", column)
        if not isinstance(value, str | int | float):
            raise self.error(f"holds {_kind(value)}, not a label", column)
        return str(value).lower() if isinstance(value, bool) else value


# --------------------------------------------------------------------- texts with labels


def read_texts(
    data: Any, *, text: str | None = None, label: str | None = None, labelled: bool = True
) -> list[LabelledText]:
    """Read texts and their labels.

    Args:
        data: a file (.csv, .tsv, .jsonl), a folder with one folder of texts per label, a pandas
            frame, a `datasets.Dataset`, or a dictionary of lists; a text may be a list of tokens.
        text: the column of the texts; None for the usual names.
        label: the column of the labels.
        labelled: whether rows must have labels.
    """
    if isinstance(data, str | Path) and Path(data).is_dir():
        return _read_folder(Path(data))
    rows = list(table(data))
    text = _find(rows[0], text, _TEXT, "text")
    label = _find(rows[0], label, _LABEL, "label", other=text) if labelled else None
    return [
        LabelledText(_content(row, text), None if label is None else row.label(label), row.where)
        for row in rows
    ]


def _content(row: TableRow, column: str) -> Text:
    """A text, or a list of tokens that is not empty."""
    return (_is_list(row.cells.get(column)) and row.texts(column)) or row.text(column)


def _read_folder(path: Path) -> list[LabelledText]:
    """Read one folder of text files per label."""
    found: list[LabelledText] = []
    # Without what systems and editors put there, such as .DS_Store.
    for file in sorted(file for file in path.glob("[!.]*/[!.]*") if file.is_file()):
        text = "\n".join(line for _, line in numbered_lines(file))
        if not text.strip():
            raise InputError("the file is empty; delete it", file=str(file))
        found.append(LabelledText(text, file.parent.name, str(file)))
    if not found:
        raise InputError(
            "there is no text; make one folder per label, with one text file per example",
            file=str(path),
        )
    return found


# --------------------------------------------------------------------- tokens with tags


def read_tokens(
    data: Any, *, text: str | None = None, label: str | None = None
) -> list[TagExample]:
    """Read sentences with one tag per token.

    Args:
        data: CoNLL columns, CoNLL-U (.conllu), .jsonl with a list of tokens and one of tags per
            line, .csv or .tsv with one token per row, a pandas frame or a `datasets.Dataset`
            of either kind.
        text: the column of the tokens in a table; None for the usual names. In CoNLL columns the
            word is the first.
        label: the column of the tags: a name; for CoNLL columns also a number from 1; for CoNLL-U
            upos, xpos, feats, or two of them with a + between.
    """
    if isinstance(data, str | Path) and not is_table(data):
        if text is not None:
            raise ConfigError(
                f"'{shown(data, 100)}' is not a table, so its words have no column {text!r}; leave "
                "out text= (--column)"
            )
        if data_suffix(str(data)) == ".conllu":
            return _read_conllu(Path(data), label or "upos")
        return read_columns(Path(data), label)
    rows = list(table(data))
    token = _find(rows[0], text, (*_TOKENS, *_TOKEN), "tokens")
    lists = _is_list(rows[0].cells[token])
    usual = _TAGS if lists else (*_TAG, *_TAGS)
    tag = _find(rows[0], label, usual, "tags", other=token)
    if lists or _is_list(rows[0].cells[tag]):
        return [_token_lists(row, token, tag) for row in rows]
    names = {name.lower(): name for name in rows[0].cells if name not in (token, tag)}
    number = next((names[name] for name in _SENTENCE if name in names), None)
    if number is None and not isinstance(data, str | Path):
        raise rows[0].error(
            "each row is one token, but no column says of which sentence; add a column called "
            "sentence, or pass lists of tokens"
        )
    return _token_rows(rows, token, tag, number)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _read_conllu(path: Path, label: str) -> list[TagExample]:
    kinds = label.lower().split(JOINT)
    if not set(kinds) <= {"upos", "xpos", "feats"}:
        raise ConfigError(f"label={label!r}: CoNLL-U has upos, xpos, feats, or two as upos+xpos")
    found = []
    for sentence in read_conllu(path):
        tags = zip(*(getattr(sentence, kind) for kind in kinds), strict=True)
        joined = tuple(JOINT.join(parts) for parts in tags)
        found.append(TagExample(sentence.words, joined, f"{path}:{sentence.line}"))
    return found


def read_columns(path: Path, label: str | None = None) -> list[TagExample]:
    """Read one word per line, in the first column, such as CoNLL-2003.

    `label` is the number of the column of the tags, from 1; by default the last.
    """
    if label is not None and not (label.isascii() and label.isdigit() and int(label)):
        raise ConfigError(f"label={label!r}: columns have no names here; give a number from 1")
    found = []
    for start, rows in column_sentences(numbered_lines(path), str(path)):
        if label is not None and int(label) > len(rows[0]):
            raise InputError(f"there is no column {label}", file=str(path), line=start)
        tags = tuple(row[-1 if label is None else int(label) - 1] for row in rows)
        found.append(TagExample(tuple(row[0] for row in rows), tags, f"{path}:{start}"))
    return found


def _token_lists(row: TableRow, first: str, second: str) -> TagExample:
    tokens, tags = row.texts(first), row.texts(second)
    if len(tokens) != len(tags):
        raise row.error(f"{len(tokens)} tokens but {len(tags)} tags; give one tag per token")
    for k, pair in enumerate(zip(tokens, tags, strict=True)):
        if not all(part.strip() for part in pair):
            raise row.error(f"token {k} has no text or no tag; fill both")
    return TagExample(tokens, tags, row.where)


def _token_rows(
    rows: Sequence[TableRow], token: str, tag: str, number: str | None
) -> list[TagExample]:
    """Join rows of single tokens: a column numbers the sentences, or blank rows separate them."""
    sentences: list[list[TableRow]] = []
    for k, row in enumerate(rows):
        if number is None:
            starts = not k or row.line > rows[k - 1].line + 1
        else:
            # Some files number only the first token of a sentence.
            own = row.cells.get(number)
            starts = not k or not (_is_missing(own) or own == sentences[-1][0].cells.get(number))
        if starts:
            sentences.append([])
        sentences[-1].append(row)
    return [
        TagExample(
            tuple(row.text(token) for row in sentence),
            tuple(row.text(tag) for row in sentence),
            sentence[0].where,
        )
        for sentence in sentences
    ]


# --------------------------------------------------------------------- tables


def is_table(file: str | Path) -> bool:
    """Whether the name of a file says that its columns have names."""
    return data_suffix(str(file)) in (".csv", ".tsv", ".tab", *_JSON)


def table(data: Any) -> Iterator[TableRow]:
    """The rows of a file, a pandas frame, a `datasets.Dataset`, or a dictionary of lists.

    Raises:
        InputError: there is none, or one is not like the others.
    """
    is_file = isinstance(data, str | Path)
    if not is_file:
        rows = _frame(data)
    else:
        start = next((line for _, line in numbered_lines(Path(data)) if line.strip()), "")
        if data_suffix(str(data)) in _JSON or (not is_table(data) and start.startswith("{")):
            rows = _json_rows(Path(data))
        else:
            rows = _delimited(Path(data))
    first = next(rows, None)
    if first is None:
        raise InputError("there is no row below the header", file=str(data) if is_file else None)
    return itertools.chain([first], rows)


def _frame(data: Any) -> Iterator[TableRow]:
    lists = isinstance(data, Mapping)
    names: Any = (
        data if lists else getattr(data, "column_names", None) or getattr(data, "columns", ())
    )
    if not len(names):
        raise ConfigError(
            f"{shown(repr(data), 60)} is not labelled data; pass a file, lists (X, y), a data "
            "frame or a dataset"
        )
    if lists and any(hasattr(part, "column_names") for part in data.values()):
        raise ConfigError(
            f"this is a dataset of several splits; pass one, such as data[{next(iter(names))!r}]"
        )
    if lists and len({0 if isinstance(part, str) else len(part) for part in data.values()}) > 1:
        raise InputError("the columns have different lengths; give one label per item")
    features = getattr(data, "features", None) or {}  # of a `datasets.Dataset`
    columns = [[_plain(value, features.get(name)) for value in data[name]] for name in names]
    for k, values in enumerate(zip(*columns, strict=True)):
        cells = dict(zip(map(str, names), values, strict=True))
        yield TableRow(cells, "item" if lists else "row", k)


def _plain(value: Any, feature: Any) -> Any:
    """Values of numpy as Python's own, missing ones as None, and classes by their names."""
    value = value.tolist() if hasattr(value, "tolist") else value
    value = value if isinstance(value, str) or not _is_missing(value) else None
    classes = getattr(feature, "feature", feature)  # of a list, those of its values
    if not hasattr(classes, "int2str"):
        return value
    if isinstance(value, list):
        return [classes.int2str(one) for one in value]
    return classes.int2str(value) if isinstance(value, int) and value >= 0 else None


def _is_missing(value: Any) -> bool:
    """Whether a cell has no value: None, a blank text, NaN, or the NA and NaT of pandas."""
    if isinstance(value, str):
        return not value.strip()
    # By name, because pandas need not be installed.
    is_nan = isinstance(value, float) and value != value
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _json_rows(path: Path) -> Iterator[TableRow]:
    for number, cells in json_lines(numbered_lines(path), str(path)):
        if not isinstance(cells, dict):
            problem = f'{_kind(cells)}, not an object such as {{"text": …, "label": …}}'
            raise InputError(problem, file=str(path), line=number)
        yield TableRow(cells, str(path), number)


def _delimited(path: Path) -> Iterator[TableRow]:
    header: list[str] = []
    for line, cells in table_rows(numbered_lines(path), str(path)):
        if not any(cell.strip() for cell in cells):
            continue
        if not header:
            header = [cell.strip() for cell in cells]
            if len(set(header)) < len(header):
                twice = next(name for name in header if header.count(name) > 1)
                problem = f"the header has the column '{shown(twice, 40)}' twice; rename one"
                raise InputError(problem, file=str(path), line=line)
        elif len(cells) != len(header):
            raise InputError(
                f"{len(cells)} columns, the header has {len(header)}; put quotes around a text "
                "that contains the separator",
                file=str(path),
                line=line,
            )
        else:
            yield TableRow(dict(zip(header, cells, strict=True)), str(path), line)
    if not header:
        raise InputError("the file is empty; the first row must name the columns", file=str(path))


def _find(
    row: TableRow, chosen: str | None, usual: Sequence[str], role: str, other: str | None = None
) -> str:
    """The column of a role: the chosen one, one with a usual name, or the only one left."""
    if chosen is not None:
        return row.check(chosen)
    names = {name.lower(): name for name in row.cells if name != other}
    found = next((names[name] for name in usual if name in names), None)
    if found is None and other is not None and len(names) == 1:
        (found,) = names.values()
    if found is None:
        how = "text=, --column" if other is None else "label=, --label"
        raise row.error(
            f"no column is called {usual[0]}; the columns are {row.names()}: name the one of the "
            f"{role} ({how})"
        )
    return found


def _kind(value: Any) -> str:
    if _is_missing(value):
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
    A separator is between several labels of one example. The user may choose the kind.
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


def refuse_single(names: Sequence[str], what: str) -> None:
    """Refuse training data with one label only."""
    if len(names) < 2:
        found = f"'{names[0]}' everywhere" if names else "none"
        raise InputError(f"there is only one {what}, {found}; a model needs two or more")


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


# --------------------------------------------------------------------- predictions for a table


def label_table(
    model: Predictor[Any, Any], source: Any, format: str = "csv", *, text: str | None = None
) -> Iterator[str]:
    """Predict on the texts of a table: its rows with all of their columns, and the labels.

    A classifier adds the columns `label` and `probability` (of several labels, both joined by
    commas; of a number, the label alone); a tagger adds `tokens` and `tags`, joined by spaces.
    If the table has such a column, the new one is called `predicted_label`, and so on.

    Args:
        model: a tagger or classifier.
        source: a file, data frame or dataset, as in `read_texts`.
        format: "csv", "tsv" or "jsonl".
        text: the column of the texts, by default one of the usual names.

    Yields:
        The lines to write, without line feeds: for csv and tsv first the header.

    Raises:
        ConfigError: another model or format.
        InputError: JSON lines have a key that the first one lacks, which csv and tsv cannot hold.
    """
    tagger = "conll" in model.formats
    if not tagger and model.name != "classify":
        raise ConfigError(f"{model.name} does not read tables; use a tagger or classifier")
    if format not in ("csv", "tsv", "jsonl"):
        raise ConfigError(f"format={format!r}; tables are written as csv, tsv or jsonl")
    rows, kept = itertools.tee(table(source))
    first = next(rows)
    rows = itertools.chain([first], rows)
    column = _find(first, text, (*_TEXT, *_TOKENS) if tagger else _TEXT, "text")
    if format != "jsonl":
        added = ("tokens", "tags") if tagger else ("label", "probability")
        yield _line([*first.cells, *(_free_name(name, first.cells) for name in added)], format)
    texts = (_content(row, column) for row in rows)
    for row, found in zip(kept, model.pipe(texts), strict=True):
        if format == "jsonl":
            values = found.to_json()
            new = {_free_name(name, first.cells): value for name, value in values.items()}
            yield json.dumps({**row.cells, **new}, ensure_ascii=False)
        else:
            # The keys of JSON lines may come in any order, and some rows may lack one.
            if more := row.cells.keys() - first.cells.keys():
                raise row.error("is not in the first row; write jsonl instead", min(more))
            own = [_cell(row.cells.get(name)) for name in first.cells]
            # Labels come with the model, which may be a stranger's; the table is the user's own.
            yield _line([*own, *map(spreadsheet_safe, found.cells())], format)


def _free_name(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name = f"predicted_{name}"
    return name


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)


def _line(cells: Sequence[str], format: str) -> str:
    if format == "tsv":  # quotes are ordinary characters there
        return "\t".join(" ".join(cell.replace("\t", " ").splitlines()) for cell in cells)
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="").writerow(cells)
    return stream.getvalue()

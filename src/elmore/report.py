"""Results: numbers and the tables behind them, as text, JSON, HTML or a data frame.

Also what every picture has in common: which formats there are, and how a figure is written.
"""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmore.base.atomic import atomic_file, atomic_path
from elmore.base.messages import printable, spreadsheet_safe
from elmore.base.optional import require
from elmore.errors import ConfigError

Value = str | int | float | bool | None
Row = Mapping[str, Value]
_FORMATS = ("svg", "png", "pdf")
# Suffixes of files that hold a picture.
PICTURES = tuple(f".{name}" for name in _FORMATS)
# Suffixes of files for spreadsheets and data frames.
TABLES = (".csv", ".tsv")
_STYLE = Path(__file__).parent / "data" / "report.css"
# Columns of a concordance, which a page sets around the word.
_CONTEXT = ("left", "word", "form", "right", "where", "shared", "substitutes")
_METRICS_IN_REPR = 3


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """Numbers, the tables behind them, and what they were measured on.

    Attributes:
        name: of the task or analysis.
        metrics: name of a metric to its number.
        measured_on: model, data, sizes and settings.
        tables: title to rows; those of a table that lack a column have nothing there.
        bars: columns with shares of 1; a page draws those of each group as one bar.
        notes: sentences that a reader of the numbers should know.
    """

    name: str
    metrics: Mapping[str, float]
    measured_on: Mapping[str, Value | Sequence[Value]] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    bars: Sequence[Sequence[str]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "name": self.name,
            "metrics": dict(self.metrics),
            "measured_on": dict(self.measured_on),
            "tables": {title: [dict(row) for row in rows] for title, rows in self.tables.items()},
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """The report as JSON text."""
        return _as_json(self.to_dict())

    def to_pandas(self, table: str | None = None) -> Any:
        """One table as a `pandas.DataFrame`.

        Args:
            table: its title; by default the first table, or the metrics if there is no table.

        Raises:
            ConfigError: there is no table of that title.
            MissingExtra: pandas is not installed.
        """
        pandas: Any = require("pandas", "sklearn", "to_pandas")
        tables = self._tables()
        if table is not None and table not in tables:
            raise ConfigError(f"there is no table {table!r}; use one of {', '.join(tables)}")
        rows = next(iter(tables.values()), []) if table is None else tables[table]
        return pandas.DataFrame([dict(row) for row in rows])

    def to_csv(self, table: str | None = None, *, tabs: bool = False) -> str:
        """One table, by default the first, as CSV, or with tabs as TSV.

        A cell that a spreadsheet would take for a formula starts with '.
        """
        rows = self._tables()[table] if table else next(iter(self._tables().values()), [])
        text = io.StringIO()
        writer = csv.writer(text, "excel-tab" if tabs else "excel", lineterminator="\n")
        names = _columns(rows)
        lines: list[Sequence[Value]] = [names, *([row.get(name) for name in names] for row in rows)]
        for cells in lines:
            safe = (spreadsheet_safe(printable(c)) if isinstance(c, str) else c for c in cells)
            writer.writerow(["" if cell is None else cell for cell in safe])
        return text.getvalue()

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the report as the suffix says.

        .json, .html (a page that stands alone), .txt, as it prints, and .csv or .tsv for the first
        table. CSV has the mark by which spreadsheets know UTF-8; TSV is for programs.

        Raises:
            ConfigError: another suffix; a name without any is a text.
        """
        path = Path(path)
        check_suffix(path)
        forms = {".json": self.to_json, ".html": self._page, ".htm": self._page}
        suffix = path.suffix.lower()
        if suffix in TABLES:
            mark = "\ufeff" if suffix == ".csv" else ""
            text = mark + self.to_csv(tabs=suffix == ".tsv").rstrip("\n")
        else:
            text = forms.get(suffix, self.__str__)()
        _write(path, text, overwrite)

    def __repr__(self) -> str:
        shown = [f"{name} {_shown(value)}" for name, value in self.metrics.items()]
        more = [f"{len(shown) - _METRICS_IN_REPR} more"] if len(shown) > _METRICS_IN_REPR else []
        return f"<Report {self.name}: {', '.join([*shown[:_METRICS_IN_REPR], *more]) or 'empty'}>"

    def __str__(self) -> str:
        blocks = []
        for title, rows in self._tables().items():
            table = aligned(*_cells(rows)) if rows else "  (nothing)"
            blocks.append(f"{printable(title)}\n{table}" if self.tables else table)
        return "\n\n".join([*blocks, "\n".join(map(printable, self._remarks()))]).rstrip()

    def _repr_html_(self) -> str:
        # Words, paths and notes may come from anyone's files: nothing is left unescaped.
        return self._tables_html(())

    def _tables_html(self, bars: Sequence[Sequence[str]]) -> str:
        tables = [_html_table(title, rows, bars) for title, rows in self._tables().items()]
        remarks = "<br>".join(map(html.escape, self._remarks()))
        return "\n".join([*tables, f"<p>{remarks}</p>"] if remarks else tables)

    def _page(self) -> str:
        name = html.escape(printable(self.name))
        style = _STYLE.read_text(encoding="utf-8")
        head = (
            '<meta charset="utf-8"><meta name="viewport" content="width=device-width, '
            f'initial-scale=1"><title>{name}</title><style>{style}</style>'
        )
        body = self._tables_html(self.bars)
        body = body.replace("<table", "<section><table").replace("</table>", "</table></section>")
        return f'<!doctype html><html lang="en"><head>{head}</head><h1>{name}</h1>{body}</html>'

    def _tables(self) -> Mapping[str, Sequence[Row]]:
        """The tables; where there are none, the metrics as one."""
        if self.tables or not self.metrics:
            return self.tables
        return {"metrics": [{"metric": name, "value": v} for name, v in self.metrics.items()]}

    def _remarks(self) -> list[str]:
        return [f"{name}: {_shown(v)}" for name, v in self.measured_on.items()] + [*self.notes]


class Reported:
    """A result whose tables are a `Report`, for notebooks, files and data frames."""

    @property
    def report(self) -> Report:
        """The result as tables."""
        raise NotImplementedError

    @property
    def tidy(self) -> Report:
        """What a spreadsheet gets: one table with complete rows."""
        return self.report

    def draw(self, path: Path, *, overwrite: bool = False) -> None:
        """Draw the result into a picture file."""
        raise ConfigError(f"there is no picture of this for '{path}'; use .html")

    def __repr__(self) -> str:
        return str(self.report)

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return self.report.to_dict()

    def to_csv(self) -> str:
        """The result as CSV; a cell that a spreadsheet would take for a formula starts with '."""
        return self.tidy.to_csv()

    def to_pandas(self, table: str | None = None) -> Any:
        """The first table of the report, or another one, as a `pandas.DataFrame`."""
        return self.report.to_pandas(table)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the result as the suffix says: .html, .json, .txt, .csv, .tsv or a picture."""
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix in PICTURES:
            self.draw(path, overwrite=overwrite)
        elif suffix == ".json":
            _write(path, _as_json(self.to_dict()), overwrite)
        else:
            (self.tidy if suffix in TABLES else self.report).save(path, overwrite=overwrite)


def _as_json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)


def _write(path: Path, text: str, overwrite: bool) -> None:
    with atomic_file(path, overwrite=overwrite) as stream:
        # Words of a broken text may hold lone surrogates, which UTF-8 cannot express.
        stream.write(f"{text}\n".encode("utf-8", "backslashreplace"))


def aligned(lines: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Lay cells out in columns, two spaces apart; `right` are the columns of numbers."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if k in right else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _cells(rows: Sequence[Row]) -> tuple[list[list[str]], set[int]]:
    """The header and the rows as text, and which columns end at the right: those of numbers."""
    columns = _columns(rows)
    values = [[row.get(column) for row in rows] for column in columns]
    numbers = {
        k
        for k, column in enumerate(values)
        if all(isinstance(value, int | float | None) for value in column)
    }
    cells = (
        map(_shown, one) if k not in numbers else _aligned_numbers(one)
        for k, one in enumerate(values)
    )
    left = {k for k, column in enumerate(columns) if column == "left"}  # of a concordance
    return [columns, *map(list, zip(*cells, strict=True))], numbers | left


def _aligned_numbers(values: Sequence[Value]) -> list[str]:
    """The numbers of a column; those up to 1, such as shares, with three decimals each."""
    found = [v for v in values if isinstance(v, float)]
    small = all(v == 0 or 0.001 <= abs(v) <= 1 for v in found)
    return [f"{v:.3f}" if small and isinstance(v, float) else _shown(v) for v in values]


def _html_table(title: str, rows: Sequence[Row], bars: Sequence[Sequence[str]] = ()) -> str:
    lines, numbers = _cells(rows) if rows else ([["(nothing)"]], set())
    header = lines[0]
    names = [name if name in _CONTEXT else "" for name in header]
    groups = [[name for name in group if name in header] for group in bars]
    # A bar of one share is beside its number, that of several at the end of the row.
    alone = {group[0] for group in groups if len(group) == 1}
    groups = [group for group in groups if len(group) > 1]

    def line(cells: Sequence[str], tag: str, row: Row | None) -> str:
        inside = []
        for k, (cell, name) in enumerate(zip(cells, names, strict=True)):
            kind = ' style="text-align: right"' if k in numbers else ""
            kind += f' class="{name}"' if name else ""
            bar = _bar(row, [header[k]]) if row is not None and header[k] in alone else ""
            inside.append(f"<{tag}{kind}>{html.escape(cell)}{bar}</{tag}>")
        inside += [f"<{tag}>{'' if row is None else _bar(row, group)}</{tag}>" for group in groups]
        return f"<tr>{''.join(inside)}</tr>"

    body = [line(header, "th", None)]
    body += [line(cells, "td", row) for cells, row in zip(lines[1:], rows, strict=True)]
    caption = f"<caption>{html.escape(title)}</caption>"
    kind = ' class="lines"' if {"left", "right"} <= {*header} else ""
    return f"<table{kind}>{caption}{''.join(body)}</table>"


def _bar(row: Row, names: Sequence[str]) -> str:
    """Shares as a bar, each in a colour of its own."""
    parts = [
        f'<div style="width:{100 * min(max(value, 0), 1):.1f}%;background:var(--s{k % 8 + 1})" '
        f'title="{html.escape(name)}: {value:.0%}"></div>'
        for k, name in enumerate(names)
        if isinstance(value := row.get(name), int | float) and value == value
    ]
    return f'<div class="bar">{"".join(parts)}</div>'


def _shown(value: Value | Sequence[Value]) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if 0 < abs(value) < 0.1:
            return f"{value:.2g}"
        return f"{value:.3f}" if 0 < abs(value) <= 1 else f"{value:.2f}"  # cosines, percentages
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_shown(item) for item in value)
    text = str(value)
    return text if text.isprintable() else repr(text)[1:-1]


def check_suffix(path: Path, *more: str) -> None:
    """Refuse a suffix that neither a report nor `more` has; call it before long work."""
    known = (".html", ".json", ".txt", *TABLES, *more)
    suffix = path.suffix.lower()
    if suffix not in (*known, ".htm", ""):
        raise ConfigError(f"cannot write '{path}' in that format; use {', '.join(known)}")
    if suffix in PICTURES:
        check_picture(path)


def check_picture(path: Path) -> str:
    """The format of a picture by its suffix; call it before long work.

    Raises:
        ConfigError: no known suffix.
        MissingExtra: matplotlib is not installed.
    """
    suffix = path.suffix.lstrip(".").lower() or "svg"
    if suffix not in _FORMATS:
        raise ConfigError(f"'{path}' is not a picture file; use the suffix {', '.join(_FORMATS)}")
    require("matplotlib", "plot", "plot")
    return suffix


def save_figure(figure: Any, path: Path, *, overwrite: bool = False) -> None:
    """Write a matplotlib figure; the same figure always gives the same bytes."""
    suffix = check_picture(path)
    import matplotlib

    # Dates and random element names would make every file a new one.
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with (
        matplotlib.rc_context({"svg.hashsalt": "elmore"}),
        atomic_path(path, overwrite=overwrite) as temporary,
    ):
        figure.savefig(temporary, format=suffix, dpi=150, metadata=dates.get(suffix))

"""The table of all tasks, and what every measurement gives: a report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmore._atomic import atomic_file

__all__ = ["TASKS", "Report", "Row", "Value"]

# Name to module, class and what it does; a class of a line is a `Task`.
TASKS: dict[str, tuple[str, str, str]] = {
    "ner": ("elmore.tasks.ner", "Ner", "names and what they are names of (CoNLL columns)"),
    "sentiment": ("elmore.tasks.sentiment", "Sentiment", "fine-grained sentiment (SST trees)"),
    "nli": ("elmore.tasks.nli", "Nli", "does one sentence follow from another (SNLI)"),
    "srl": ("elmore.tasks.srl", "Srl", "who did what to whom (CoNLL-2012 PropBank columns)"),
    "qa": ("elmore.tasks.qa", "Qa", "the answer to a question in a paragraph (SQuAD)"),
    "coref": ("elmore.tasks.coref", "Coref", "which words mean the same (CoNLL-2012 clusters)"),
}

Value = str | int | float | bool | None
Row = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Numbers, the tables behind them, and what they were measured on.

    Attributes:
        name: of the task or probe.
        metrics: name of a metric to its number.
        measured_on: model, data, sizes and settings.
        tables: title to rows; the rows of a table have the same columns.
        notes: sentences that a reader of the numbers should know.
    """

    name: str
    metrics: Mapping[str, float]
    measured_on: Mapping[str, Value | Sequence[Value]] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    notes: Sequence[str] = ()

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
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        blocks = [
            f"{title}\n{_aligned(rows)}" if rows else f"{title}\n  (nothing)"
            for title, rows in self.tables.items()
        ]
        if not self.tables and self.metrics:
            blocks.append(
                _aligned([{"metric": name, "value": v} for name, v in self.metrics.items()])
            )
        settings = [f"{name}: {_shown(value)}" for name, value in self.measured_on.items()]
        return "\n\n".join([*blocks, "\n".join([*settings, *self.notes])]).rstrip()

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the report: JSON if the suffix is .json, else the text that it prints.

        Args:
            path: the file to make.
            overwrite: replace a file that is there.
        """
        path = Path(path)
        text = self.to_json() if path.suffix.lower() == ".json" else str(self)
        with atomic_file(path, overwrite=overwrite) as stream:
            stream.write(f"{text}\n".encode("utf-8", "backslashreplace"))


def _aligned(rows: Sequence[Row]) -> str:
    columns = list(rows[0])
    table = [columns, *([_shown(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[k]) for line in table) for k in range(len(columns))]
    numeric = [
        all(isinstance(row[column], int | float | None) for row in rows) for column in columns
    ]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in table
    )


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

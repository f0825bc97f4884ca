"""Rows of results as a Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def table(rows: Sequence[Mapping[str, Any]], digits: int = 2) -> list[str]:
    """Lay out rows that have the names of their columns as keys."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        lines.append("| " + " | ".join(_shown(row[name], digits) for name in names) + " |")
    return lines


def _shown(value: Any, digits: int) -> str:
    if value is None:
        return "–"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)

"""Predictions as lines for a terminal: labels in brackets, colours where they can be seen."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from elmore.tasks.data.tags import Span

__all__ = ["class_line", "mark_spans", "paint", "tag_lines"]

# Distinct on dark and on light ground; a label keeps its colour within a line.
_COLOURS = (34, 32, 35, 36, 33, 31)


def paint(text: str, which: int, *, colour: bool) -> str:
    """Colour a text by a number."""
    return f"\x1b[1;{_COLOURS[which % len(_COLOURS)]}m{text}\x1b[0m" if colour else text


def mark_spans(tokens: Sequence[str], spans: Iterable[Span], *, colour: bool) -> str:
    """Put labelled brackets around spans that do not overlap: `[PER Ada Lovelace] wrote`."""
    words = [_visible(token) for token in tokens]
    labels: dict[str, int] = {}
    for label, first, last in spans:
        which = labels.setdefault(label, sum(map(ord, label)))
        inside = " ".join(words[first : last + 1])
        words[first] = paint(f"[{label} {inside}]", which, colour=colour)
        words[first + 1 : last + 1] = [""] * (last - first)
    return " ".join(word for word in words if word)


def _visible(token: str) -> str:
    """Show control characters as escapes: text from elsewhere must not steer a terminal."""
    return token if token.isprintable() else repr(token)[1:-1]


def tag_lines(
    tokens: Sequence[str],
    parts: Sequence[Sequence[str]],
    chances: Sequence[float],
    *,
    colour: bool,
) -> str:
    """One token, the parts of its tag and the probability per line, aligned; then a blank line."""
    words = [_visible(token) for token in tokens]
    wide = max((width(word) for word in words), default=0)
    widths = [max(map(len, column)) for column in zip(*parts, strict=True)]
    lines = []
    for word, part, chance in zip(words, parts, chances, strict=True):
        cells = "  ".join(name.ljust(w) for name, w in zip(part, widths, strict=True))
        named = paint(cells, sum(map(ord, part[0])), colour=colour)
        lines.append(f"{word}{' ' * (wide - width(word))}  {named}  {chance:.2f}")
    return "\n".join([*lines, ""])


def class_line(
    label: str | tuple[str, ...] | float,
    chances: Mapping[str, float],
    text: str,
    *,
    colour: bool,
) -> str:
    """The label, its probability and the start of the text."""
    if isinstance(label, float):
        named, chance = f"{label:10.3f}", ""
    else:
        names = (label,) if isinstance(label, str) else label
        wide = max((len(name) for name in chances), default=0)
        shown = ", ".join(names) or "-"
        named = paint(shown.rjust(wide), sum(map(ord, shown)), colour=colour)
        chance = " ".join(f"{chances[name]:.2f}" for name in names if name in chances)
    return f"{named}  {chance:4}  {_visible(text)}".rstrip()


def width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)

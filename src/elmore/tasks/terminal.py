"""Predictions as lines for a terminal: labels in brackets, colours where they can be seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elmore.tasks.tags import Span

__all__ = ["mark_spans", "paint"]

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

"""Arguments of predicates: exact spans without the predicate itself."""

from __future__ import annotations

from collections.abc import Sequence

from elmore.report import Row
from elmore.tasks.metrics.spans import span_scores
from elmore.tasks.tags import Span

__all__ = ["join_continuations", "role_scores"]

# The label of the predicate itself, and of its parts.
_PREDICATE = ("V", "C-V")
Argument = tuple[str, tuple[tuple[int, int], ...]]


def role_scores(
    gold: Sequence[Sequence[Span]], found: Sequence[Sequence[Span]], lengths: Sequence[int]
) -> tuple[dict[str, float], list[Row]]:
    """Score the arguments of predicates.

    Args:
        gold: the right spans of each predicate, V among them or not.
        found: the predicted ones.
        lengths: tokens of each predicate's sentence.

    Returns:
        precision, recall and f1 of simple spans in percent, and `joined f1`, where a C-X counts
        as a part of the X before it, as in the official scorer; a row for each role.
    """
    right, guessed = (
        [[span for span in spans if span.label not in _PREDICATE] for spans in side]
        for side in (gold, found)
    )
    metrics, rows = span_scores(right, guessed, lengths)
    hits = n_right = n_guessed = 0
    for a, b in zip(right, guessed, strict=True):
        one, two = join_continuations(a), join_continuations(b)
        hits += len(set(one) & set(two))
        n_right += len(one)
        n_guessed += len(two)
    joined = 200 * hits / (n_right + n_guessed) if n_right + n_guessed else 0.0
    return {**metrics, "joined f1": joined}, rows


def join_continuations(spans: Sequence[Span]) -> list[Argument]:
    """Join each C-X to the nearest X before it; one without stays an X of its own."""
    joined: list[tuple[str, list[tuple[int, int]]]] = []
    for label, first, last in sorted(spans, key=lambda span: span.first):
        base = label.removeprefix("C-")
        if label != base:
            earlier = next((parts for name, parts in reversed(joined) if name == base), None)
            if earlier is not None:
                earlier.append((first, last))
                continue
        joined.append((base, [(first, last)]))
    return [(label, tuple(parts)) for label, parts in joined]

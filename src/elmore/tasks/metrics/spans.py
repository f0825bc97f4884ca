"""Exact matches of labelled spans, micro-averaged over a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elmore._imports import require
from elmore.tasks.tags import Span, tags_from_spans
from elmore.tasks.task import Row

__all__ = ["span_scores"]


def span_scores(
    gold: Sequence[Sequence[Span]], found: Sequence[Sequence[Span]], lengths: Sequence[int]
) -> tuple[dict[str, float], list[Row]]:
    """Score spans that do not overlap, with seqeval (which counts as conlleval does).

    Args:
        gold: the right spans of each sentence.
        found: the predicted ones.
        lengths: tokens of each sentence.

    Returns:
        precision, recall and f1 in percent; a row for each label.
    """
    seqeval: Any = require("seqeval.metrics", "tasks", "scoring spans")
    if not any(gold) and not any(found):
        return {"f1": 0.0, "precision": 0.0, "recall": 0.0}, []
    both = [
        [tags_from_spans(spans, n, "IOB2") for spans, n in zip(side, lengths, strict=True)]
        for side in (gold, found)
    ]
    table = seqeval.classification_report(*both, output_dict=True, zero_division=0)

    def row(name: str) -> dict[str, float]:
        return {
            "f1": 100 * float(table[name]["f1-score"]),
            "precision": 100 * float(table[name]["precision"]),
            "recall": 100 * float(table[name]["recall"]),
        }

    labels = [name for name in table if not name.endswith(" avg")]
    rows: list[Row] = [
        {"label": name, **row(name), "spans": int(table[name]["support"])} for name in labels
    ]
    return row("micro avg"), rows

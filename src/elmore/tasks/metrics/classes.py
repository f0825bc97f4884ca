"""Accuracy over labelled items, and how each label fares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elmore._imports import require
from elmore.tasks.task import Row

__all__ = ["class_scores"]


def class_scores(
    gold: Sequence[str], found: Sequence[str], labels: Sequence[str]
) -> tuple[dict[str, float], list[Row]]:
    """Score labels with scikit-learn.

    Args:
        gold: the right label of each item.
        found: the predicted one.
        labels: all labels, in the order of the table.

    Returns:
        accuracy and mean f1 of the labels in percent; a row for each label.
    """
    metrics: Any = require("sklearn.metrics", "tasks", "scoring labels")
    accuracy = 100 * float(metrics.accuracy_score(list(gold), list(found)))
    precision, recall, f1, support = metrics.precision_recall_fscore_support(
        list(gold), list(found), labels=list(labels), zero_division=0
    )
    rows: list[Row] = [
        {
            "label": label,
            "f1": 100 * float(f1[k]),
            "precision": 100 * float(precision[k]),
            "recall": 100 * float(recall[k]),
            "items": int(support[k]),
        }
        for k, label in enumerate(labels)
    ]
    mean = sum(float(value) for value in f1) / max(1, len(labels))
    return {"accuracy": accuracy, "mean f1": 100 * mean}, rows

"""MUC, B-cubed and CEAF-phi4 over clusters of mentions, and their mean (CoNLL-2012)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from elmore._imports import require
from elmore.tasks.task import Row

__all__ = ["cluster_scores"]

Cluster = frozenset[Hashable]
# Numerator and denominator of precision, then of recall, summed over documents.
Sums = tuple[float, float, float, float]


def cluster_scores(
    gold: Sequence[Iterable[Iterable[Hashable]]], found: Sequence[Iterable[Iterable[Hashable]]]
) -> tuple[dict[str, float], list[Row]]:
    """Score clusters; sums run over all documents before dividing.

    Predicted clusters of one mention are dropped; gold ones are taken as they are given.

    Args:
        gold: the right clusters of each document, mentions as any values.
        found: the predicted ones.

    Returns:
        `f1` (the mean of the three) and each measure's f1 in percent; a row for each measure.
    """
    measures = {"muc": _muc, "b3": _b_cubed, "ceaf": _ceaf}
    totals = {name: [0.0] * 4 for name in measures}
    for right, guessed in zip(gold, found, strict=True):
        keys = [frozenset(cluster) for cluster in right]
        answers = [c for cluster in guessed if len(c := frozenset(cluster)) > 1]
        for name, measure in measures.items():
            totals[name] = [
                a + b for a, b in zip(totals[name], measure(keys, answers), strict=True)
            ]
    rows: list[Row] = []
    f1s = {}
    for name, (hit_p, of_p, hit_r, of_r) in totals.items():
        precision = hit_p / of_p if of_p else 0.0
        recall = hit_r / of_r if of_r else 0.0
        f1s[name] = 200 * precision * recall / (precision + recall) if precision + recall else 0.0
        rows.append(
            {
                "measure": name,
                "f1": f1s[name],
                "precision": 100 * precision,
                "recall": 100 * recall,
            }
        )
    return {"f1": sum(f1s.values()) / len(f1s), **f1s}, rows


def _muc(keys: list[Cluster], answers: list[Cluster]) -> Sums:
    return *_links(answers, keys), *_links(keys, answers)


def _links(clusters: list[Cluster], others: list[Cluster]) -> tuple[float, float]:
    """Count links of clusters that the others have too, and all links."""
    where = {mention: k for k, other in enumerate(others) for mention in other}
    hits = total = 0
    for cluster in clusters:
        known = {where[mention] for mention in cluster if mention in where}
        missing = sum(mention not in where for mention in cluster)
        hits += len(cluster) - len(known) - missing
        total += len(cluster) - 1
    return hits, total


def _b_cubed(keys: list[Cluster], answers: list[Cluster]) -> Sums:
    return *_shares(answers, keys), *_shares(keys, answers)


def _shares(clusters: list[Cluster], others: list[Cluster]) -> tuple[float, float]:
    where = {mention: other for other in others for mention in other}
    hits = 0.0
    for cluster in clusters:
        hits += sum(
            len(cluster & where[mention]) / len(cluster) for mention in cluster if mention in where
        )
    return hits, sum(map(len, clusters))


def _ceaf(keys: list[Cluster], answers: list[Cluster]) -> Sums:
    if not keys or not answers:
        return 0.0, len(answers), 0.0, len(keys)
    alike = np.array([[2 * len(k & a) / (len(k) + len(a)) for a in answers] for k in keys])
    optimize: Any = require("scipy.optimize", "tasks", "scoring clusters")
    rows, columns = optimize.linear_sum_assignment(-alike)
    total = float(alike[rows, columns].sum())
    return total, len(answers), total, len(keys)

"""Scores that several tasks need, of labelled spans and items, and tables that explain them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from elmore.base.optional import require
from elmore.report import Row
from elmore.tasks.data.tags import Span, tags_from_spans

_SHOWN = 10  # rows of a table of mistakes
# From this ratio on, the rarest label may never be predicted.
_RARE = 10


def span_scores(
    gold: Sequence[Sequence[Span]], found: Sequence[Sequence[Span]], lengths: Sequence[int]
) -> tuple[dict[str, float], list[Row]]:
    """Score spans that do not overlap; a span counts if both ends and the label are right.

    Sentences have `lengths` tokens.

    Returns:
        micro-averaged precision, recall and f1 in percent; one row per label.
    """
    seqeval: Any = require("seqeval.metrics", "tasks", "scoring spans")
    if not any(gold) and not any(found):  # seqeval fails without a single span
        return {"f1": 0.0, "precision": 0.0, "recall": 0.0}, []
    # seqeval reads tags, and counts as conlleval does.
    both = [
        [tags_from_spans(spans, n, "IOB2") for spans, n in zip(side, lengths, strict=True)]
        for side in (gold, found)
    ]
    table = seqeval.classification_report(*both, output_dict=True, zero_division=0)

    def row(name: str) -> dict[str, float]:
        names = {"f1": "f1-score", "precision": "precision", "recall": "recall"}
        return {ours: 100 * float(table[name][theirs]) for ours, theirs in names.items()}

    labels = [name for name in table if not name.endswith(" avg")]
    rows: list[Row] = [
        {"label": name, **row(name), "spans": int(table[name]["support"])} for name in labels
    ]
    return row("micro avg"), rows


def class_scores(
    gold: Sequence[str], found: Sequence[str], labels: Sequence[str]
) -> tuple[dict[str, float], list[Row]]:
    """Score one label per item; `labels` are all, in the order of the table.

    Returns:
        accuracy and mean f1 of the labels in percent; one row per label.
    """
    if not gold:
        return {"accuracy": 0.0, "mean f1": 0.0}, []
    metrics, both = _sklearn("metrics"), (list(gold), list(found))
    columns = metrics.precision_recall_fscore_support(*both, labels=list(labels), zero_division=0)
    mean, rows = _class_rows(labels, columns)
    return {"accuracy": 100 * float(metrics.accuracy_score(*both)), "mean f1": mean}, rows


def set_scores(
    gold: Sequence[Collection[str]], found: Sequence[Collection[str]], labels: Sequence[str]
) -> tuple[dict[str, float], list[Row]]:
    """Score any number of labels per item; arguments as in `class_scores`.

    Returns:
        f1 over all labels, their mean f1, and the share of items whose labels are all right, in
        percent; one row per label.
    """
    metrics = _sklearn("metrics")
    table = _sklearn("preprocessing").MultiLabelBinarizer(classes=list(labels)).fit([])
    both = table.transform(gold), table.transform(found)
    columns = metrics.precision_recall_fscore_support(*both, zero_division=0)
    mean, rows = _class_rows(labels, columns)
    f1 = 100 * float(metrics.f1_score(*both, average="micro", zero_division=0))
    return {"f1": f1, "mean f1": mean, "all right": 100 * metrics.accuracy_score(*both)}, rows


def _sklearn(part: str) -> Any:
    return require(f"sklearn.{part}", "tasks", "scoring labels")


def _class_rows(labels: Sequence[str], columns: Any) -> tuple[float, list[Row]]:
    """The mean f1, and one row per label."""
    rows: list[Row] = [
        {
            "label": label,
            "f1": 100 * float(f1),
            "precision": 100 * float(precision),
            "recall": 100 * float(recall),
            "items": int(items),
        }
        for label, precision, recall, f1, items in zip(labels, *columns, strict=True)
    ]
    return 100 * sum(float(f1) for f1 in columns[2]) / max(1, len(labels)), rows


# --------------------------------------------------------------------- labels and mistakes


def label_rows(counts: Counter[str], held_out: Counter[str]) -> list[Row]:
    """How often each label occurs, most frequent first."""
    total = max(1, counts.total())
    order = sorted({*counts, *held_out}, key=lambda name: (-counts[name], name))
    return [
        {
            "label": name,
            "training": counts[name],
            "share": 100 * counts[name] / total,
            "held out": held_out[name],
        }
        for name in order
    ]


def imbalance(counts: Mapping[str, int]) -> list[str]:
    if len(counts) < 2:
        return []
    top, last = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    if counts[top] <= _RARE * counts[last]:
        return []
    return [
        f"the labels are not balanced: '{top}' occurs {counts[top]} times, '{last}' "
        f"{counts[last]} times; look at the f1 of each label, not at the accuracy alone"
    ]


def mistake_tables(
    pairs: Sequence[tuple[str, str]], items: Iterable[tuple[float, Row]]
) -> dict[str, list[Row]]:
    """The most frequent confusions, and the mistakes that the model was most certain of.

    Each item has a pair, the right and the predicted label; and the probability of the latter with
    what to show.
    """
    both = zip(pairs, items, strict=True)
    wrong = [
        (chance, {"right": a, "predicted": b, **shown})
        for (a, b), (chance, shown) in both
        if a != b
    ]
    times = Counter((row["right"], row["predicted"]) for _, row in wrong)
    often = sorted(times, key=lambda pair: (-times[pair], pair))[:_SHOWN]
    surest = sorted(wrong, key=lambda mistake: -mistake[0])[:_SHOWN]
    tables: dict[str, list[Row]] = {
        "confusions": [{"right": a, "predicted": b, "times": times[a, b]} for a, b in often],
        "most confident mistakes": [{**row, "probability": chance} for chance, row in surest],
    }
    return tables if wrong else {}

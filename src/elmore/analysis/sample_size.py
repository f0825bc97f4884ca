"""How much data and how many epochs ELMo saves (paper §5.4, Figure 1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmore.analysis.studies import Outcome, TaskStudy, Variant
from elmore.errors import ConfigError
from elmore.report import Report, Row

__all__ = ["SampleSize"]

_SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)
# Small samples are given more epochs, so that they see about as many examples; within reason.
_MOST_EPOCHS = 10
# Looks are a tenth of the data apart at least: after a few steps each, patience would end a run
# that has hardly begun.
_LOOK_SHARE = 0.1
_FEW_SEEDS_FROM = 0.3


class SampleSize(TaskStudy):
    """Train a task on growing, nested parts of its data, with and without ELMo.

    Args:
        elmo: the model.
        shares: parts of the training data, from 0 to 1.
        settings: as in `TaskStudy`; `seeds` counts for shares below 30 %, from there on it is one.

    Examples:
        >>> report = SampleSize(elmo, task="ner", seeds=3).run(["train.conll", "dev.conll"])
        >>> list(report.metrics)[:2]
        ['1 % baseline', '1 % elmo']
    """

    name = "sample-size"

    def __init__(self, elmo: Any, *, shares: Sequence[float] = _SHARES, **settings: Any) -> None:
        super().__init__(elmo, **settings)
        if not shares or not all(0 < share <= 1 for share in shares):
            raise ConfigError(f"shares={list(shares)}; use parts above 0 and up to 1")
        self.shares = sorted(set(shares))

    def run(self, data: Sequence[str | Path]) -> Report:
        """Train and compare.

        Args:
            data: two files, TRAIN and DEV.
        """
        epochs = self._recipe(Variant("")).schedule.epochs
        variants = []
        for share in self.shares:
            longer = {"schedule.epochs": str(round(epochs * min(_MOST_EPOCHS, 1 / share)))}
            seeds = self.seeds if share < _FEW_SEEDS_FROM else 1
            for elmo in (False, True):
                name = f"{100 * share:g} % {'elmo' if elmo else 'baseline'}"
                looks = max(1, round(_LOOK_SHARE / share))
                variants.append(Variant(name, longer, elmo, share, seeds, looks))
        outcomes = self.compare(variants, data)
        pairs = list(zip(outcomes[::2], outcomes[1::2], strict=True))
        tables = {"sample-size": [_row(*pair) for pair in pairs], "epochs": _epochs(*pairs[-1])}
        return self.report(outcomes, tables, data, _findings(pairs))


def _row(baseline: Outcome, elmo: Outcome) -> Row:
    return {
        "share": 100 * baseline.variant.share,
        "examples": baseline.examples,
        "baseline": baseline.mean,
        "baseline sd": baseline.sd if len(baseline.scores) > 1 else None,
        "elmo": elmo.mean,
        "elmo sd": elmo.sd if len(elmo.scores) > 1 else None,
        "gain": elmo.mean - baseline.mean,
    }


def _epochs(baseline: Outcome, elmo: Outcome) -> list[Row]:
    """Give the scores of every epoch at the largest share, first seed."""
    one, two = baseline.curves[0], elmo.curves[0]
    return [
        {
            "epoch": (k + 1) * baseline.variant.look_epochs,
            "baseline": one[k] if k < len(one) else None,
            "elmo": two[k] if k < len(two) else None,
        }
        for k in range(max(len(one), len(two)))
    ]


def _findings(pairs: Sequence[tuple[Outcome, Outcome]]) -> list[str]:
    """Say what the paper says: epochs and data that ELMo saves."""
    baseline, elmo = pairs[-1]
    goal = max(baseline.curves[0])
    looks = baseline.variant.look_epochs
    when = next((k * looks for k, score in enumerate(elmo.curves[0], 1) if score >= goal), None)
    needed = looks * (baseline.curves[0].index(goal) + 1)
    if goal <= 0:
        return ["the baseline learned nothing on all of the data; give it more epochs"]
    notes = [
        f"the baseline is best after epoch {needed}; ELMo reaches that score "
        + (f"after epoch {when}" if when else "never")
    ]
    share = next((o.variant.share for _, o in pairs if o.mean >= baseline.mean), None)
    notes.append(
        f"the smallest share at which ELMo reaches the baseline's {100 * baseline.variant.share:g} "
        f"% score: {f'{100 * share:g} %' if share else 'none'}"
    )
    notes.append("the paper (SRL): 1 % of the data with ELMo is about the baseline's 10 %")
    return notes

"""How to weigh layers: the last alone, an equal mix, a learned one (paper §5.1, Table 2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elmore.analysis.studies import TaskStudy, Variant
from elmore.report import Report, Row

__all__ = ["LayerWeighting"]

_PAPER: list[Row] = [
    {"task": "SQuAD", "baseline": 80.8, "last only": 84.7, "lambda 1": 85.0, "lambda 0.001": 85.2},
    {"task": "SNLI", "baseline": 88.1, "last only": 89.1, "lambda 1": 89.3, "lambda 0.001": 89.5},
    {"task": "SRL", "baseline": 81.6, "last only": 84.1, "lambda 1": 84.6, "lambda 0.001": 84.8},
]


class LayerWeighting(TaskStudy):
    """Train a task without ELMo, with its last layer, and with all layers under two penalties.

    Examples:
        >>> report = LayerWeighting(elmo, task="ner").run(["train.conll", "dev.conll"])
        >>> list(report.metrics)
        ['baseline', 'last only', 'lambda 1', 'lambda 0.001']
    """

    name = "layers"

    def run(self, data: Sequence[str | Path]) -> Report:
        """Train and compare.

        Args:
            data: two files, TRAIN and DEV.
        """
        variants = [
            Variant("baseline", elmo=False, seeds=self.seeds),
            Variant("last only", {"elmo.layers": '"top"'}, seeds=self.seeds),
            Variant("lambda 1", {"elmo.penalty": "1.0"}, seeds=self.seeds),
            Variant("lambda 0.001", {"elmo.penalty": "0.001"}, seeds=self.seeds),
        ]
        outcomes = self.compare(variants, data)
        tables = {"layers": self.rows(outcomes), "the paper (development)": _PAPER}
        return self.report(outcomes, tables, data)

"""Where ELMo enters: below the first RNN, above it, or both (paper §5.2, Table 3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elmore.analysis.studies import TaskStudy, Variant
from elmore.report import Report, Row

__all__ = ["Placement"]

_PAPER: list[Row] = [
    {"task": "SQuAD", "input only": 85.1, "input and output": 85.6, "output only": 84.8},
    {"task": "SNLI", "input only": 88.9, "input and output": 89.5, "output only": 88.7},
    {"task": "SRL", "input only": 84.7, "input and output": 84.3, "output only": 80.9},
]
_PLACES = {
    "input only": ("true", "false"),
    "input and output": ("true", "true"),
    "output only": ("false", "true"),
}


class Placement(TaskStudy):
    """Train a task with ELMo at its input, at its output, and at both.

    Examples:
        >>> report = Placement(elmo, task="ner").run(["train.conll", "dev.conll"])
        >>> list(report.metrics)
        ['baseline', 'input only', 'input and output', 'output only']
    """

    name = "placement"

    def run(self, data: Sequence[str | Path]) -> Report:
        """Train and compare.

        Args:
            data: two files, TRAIN and DEV.
        """
        variants = [
            Variant("baseline", elmo=False, seeds=self.seeds),
            *(
                Variant(name, {"elmo.input": below, "elmo.output": above}, seeds=self.seeds)
                for name, (below, above) in _PLACES.items()
            ),
        ]
        outcomes = self.compare(variants, data)
        tables = {"placement": self.rows(outcomes), "the paper (development)": _PAPER}
        return self.report(outcomes, tables, data)

"""What trained tasks make of the layers: their learned weights (paper §5.5, Figure 2)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmore.errors import ConfigError, FormatError, InputError
from elmore.tasks.folder import TaskFolder, read_task
from elmore.tasks.recipe import ElmoRecipe
from elmore.tasks.task import Report, Row
from elmore.training.recipe_values import section_from_json

__all__ = ["Mixes"]


class Mixes:
    """Collect the mixes of trained tasks; several trainings of one task are averaged.

    Examples:
        >>> report = Mixes().run(["runs/ner", "runs/srl"])
        >>> share = report.tables["mix"][0]["layer 1"]
    """

    name = "mix"

    def __init__(self, elmo: Any = None, **settings: Any) -> None:
        """Take nothing: the folders hold all there is to know."""

    def run(self, data: Sequence[str | Path]) -> Report:
        """Read trained tasks.

        Args:
            data: their folders, or those of their runs.
        """
        if isinstance(data, str | Path) or not data:
            raise ConfigError("mix takes folders of trained tasks; name one or more")
        found: dict[tuple[str, str], list[tuple[list[float], float]]] = {}
        penalties: dict[str, float] = {}
        for path in data:
            content, _ = read_task(path)
            use = section_from_json(content.recipe.get("elmo"), ElmoRecipe, f"{path}: elmo")
            penalties[content.task] = use.penalty
            for place, weights, gamma in _mixes(content, use, path):
                found.setdefault((content.task, place), []).append((weights, gamma))
        if not found:
            raise InputError("none of these tasks was trained with ELMo; name others")
        rows: list[Row] = []
        for (task, place), mixes in found.items():
            columns = list(zip(*(weights for weights, _ in mixes), strict=True))
            named: dict[str, Any] = {
                f"layer {k}": statistics.fmean(c) for k, c in enumerate(columns)
            }
            spread = max(max(column) - min(column) for column in columns)
            rows.append(
                {
                    "task": task,
                    "place": place,
                    **named,
                    "range": spread,
                    "gamma": statistics.fmean(gamma for _, gamma in mixes),
                    "lambda": penalties[task],
                    "trainings": len(mixes),
                }
            )
        return Report(
            name=self.name,
            metrics={f"{row['task']} {row['place']} layer 1": _layer_1(row) for row in rows},
            measured_on={"model": None, "trained tasks": [str(path) for path in data]},
            tables={"mix": rows},
            notes=[
                "the paper: at the input the first LSTM layer is favoured; at the output the "
                "weights are balanced, slightly in favour of lower layers",
                "without layer norm layers differ in scale: a weight is not a share of the sum",
            ],
        )


def _layer_1(row: Row) -> float:
    value = row.get("layer 1", row.get("layer 0"))
    return float(value) if isinstance(value, int | float) else 0.0


def _mixes(
    content: TaskFolder, use: ElmoRecipe, path: str | Path
) -> list[tuple[str, list[float], float]]:
    """Give place, softmax of the weights and gamma of each mix of a task."""
    places = [*(["input"] if use.input else []), *(["output"] if use.output else [])]
    result = []
    for k, place in enumerate(places):
        scores = content.weights.get(f"features.elmo.mixes.{k}.weights")
        if scores is None:
            continue  # the baseline
        gamma = content.weights.get(f"features.elmo.mixes.{k}.gamma")
        if gamma is None or gamma.ndim or scores.ndim != 1 or not scores.size:
            raise FormatError(f"'{path}' has no whole mix at its {place}; restore it")
        powers = np.exp(scores - scores.max())
        result.append((place, (powers / powers.sum()).tolist(), float(gamma)))
    return result

"""What trained tasks make of the layers: their learned weights (paper §5.5, Figure 2)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmore.errors import ConfigError, FormatError, InputError
from elmore.formats.detect import read_checkpoint
from elmore.tasks.folder import TaskFolder, read_task
from elmore.tasks.recipe import ElmoRecipe
from elmore.tasks.task import Report, Row
from elmore.training.recipe_values import section_from_json

__all__ = ["Mixes"]

_TOP = "top layer"


class Mixes:
    """Collect the mixes of trained tasks; trainings that are alike are averaged.

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
        # Trainings are alike in task, place, the layers that are mixed, and lambda.
        found: dict[tuple[str, str, tuple[str, ...], float], list[tuple[list[float], float]]] = {}
        without: list[str] = []
        for path in data:
            content, inside = read_task(path)
            use = section_from_json(content.recipe.get("elmo"), ElmoRecipe, f"{path}: elmo")
            mixes = _mixes(content, use, path)
            if not mixes:
                without.append(str(path))
            for place, weights, gamma in mixes:
                names = _names(use, inside, len(weights))
                found.setdefault((content.task, place, names, use.penalty), []).append(
                    (weights, gamma)
                )
        if not found:
            raise InputError("none of these tasks was trained with ELMo; name others")
        every = sorted({name for _, _, names, _ in found for name in names}, key=_order)
        rows: list[Row] = []
        metrics: dict[str, float] = {}
        for (task, place, names, penalty), alike in found.items():
            columns = list(zip(*(weights for weights, _ in alike), strict=True))
            means = {name: statistics.fmean(c) for name, c in zip(names, columns, strict=True)}
            rows.append(
                {
                    "task": task,
                    "place": place,
                    **{name: means.get(name) for name in every},
                    "range": max(max(column) - min(column) for column in columns),
                    "gamma": statistics.fmean(gamma for _, gamma in alike),
                    "lambda": penalty,
                    "trainings": len(alike),
                }
            )
            if len(names) > 1:
                name = f"{task} {place} layer 1 of {len(names)}, lambda {penalty:g}"
                metrics[name] = means["layer 1"]
        return Report(
            name=self.name,
            metrics=metrics,
            measured_on={"model": None, "trained tasks": [str(path) for path in data]},
            tables={"mix": rows},
            notes=[
                "the paper: at the input the first LSTM layer is favoured; at the output the "
                "weights are balanced, slightly in favour of lower layers",
                "without layer norm layers differ in scale: a weight is not a share of the sum",
                *([f"without ELMo, left out: {', '.join(without)}"] if without else []),
            ],
        )


def _names(use: ElmoRecipe, inside: Path | None, n_weights: int) -> tuple[str, ...]:
    """Name the layers of a mix; the number of the last one alone is known to the biLM inside."""
    if use.layers == "all":
        return tuple(f"layer {k}" for k in range(n_weights))
    if inside is None:
        return (_TOP,)
    return (f"layer {read_checkpoint(inside).config.n_layers - 1}",)


def _order(name: str) -> tuple[bool, int, str]:
    return name == _TOP, len(name), name


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

"""What trained tasks make of the layers: their learned weights (paper §5.5, Figure 2)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmore._json import from_json
from elmore.errors import ConfigError, FormatError, InputError
from elmore.formats.detect import read_checkpoint
from elmore.tasks.folder import TaskFolder, read_task
from elmore.tasks.places import trainings_of
from elmore.tasks.recipe import ElmoRecipe
from elmore.tasks.task import Report, Row

__all__ = ["LearnedMix", "Mixes", "mix_report"]

_TOP = "top layer"


@dataclass(frozen=True)
class LearnedMix:
    """The mix of one place in one training.

    Attributes:
        task: name of the task.
        place: "input" or "output".
        weights: name of a layer to its weight, a softmax.
        gamma: the scale.
        penalty: lambda.
    """

    task: str
    place: str
    weights: Mapping[str, float]
    gamma: float
    penalty: float


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
            data: their folders, or those of their runs; one of several seeds stands for them all.
        """
        if isinstance(data, str | Path) or not data:
            raise ConfigError("mix takes folders of trained tasks; name one or more")
        mixes: list[LearnedMix] = []
        without: list[str] = []
        folders = [folder for path in data for folder in trainings_of(path)]
        for path in folders:
            content, inside = read_task(path)
            found = _mixes(content, inside, path)
            mixes += found
            if not found:
                without.append(str(path))
        if not mixes:
            raise InputError("none of these tasks was trained with ELMo; name others")
        notes = [f"without ELMo, left out: {', '.join(without)}"] if without else []
        return mix_report(mixes, [str(path) for path in folders], notes)


def mix_report(
    mixes: Sequence[LearnedMix], trained: Sequence[str], notes: Sequence[str] = ()
) -> Report:
    """Average mixes that are alike: in task, place, the layers that are mixed, and lambda.

    Args:
        mixes: of all trainings.
        trained: names of the trainings.
        notes: what else a reader should know.
    """
    groups: dict[tuple[str, str, tuple[str, ...], float], list[LearnedMix]] = {}
    for mix in mixes:
        key = (mix.task, mix.place, tuple(mix.weights), mix.penalty)
        groups.setdefault(key, []).append(mix)
    every = sorted({name for mix in mixes for name in mix.weights}, key=_order)
    rows: list[Row] = []
    metrics: dict[str, float] = {}
    for (task, place, names, penalty), alike in groups.items():
        columns = {name: [mix.weights[name] for mix in alike] for name in names}
        means = {name: statistics.fmean(column) for name, column in columns.items()}
        rows.append(
            {
                "task": task,
                "place": place,
                **{name: means.get(name) for name in every},
                "range": max(max(column) - min(column) for column in columns.values())
                if len(alike) > 1
                else None,
                "gamma": statistics.fmean(mix.gamma for mix in alike),
                "lambda": penalty,
                "trainings": len(alike),
            }
        )
        if len(names) > 1:
            name = f"{task} {place} layer 1 of {len(names)}, lambda {penalty:g}"
            metrics[name] = means["layer 1"]
    return Report(
        name=Mixes.name,
        metrics=metrics,
        measured_on={"model": None, "trained tasks": list(trained)},
        tables={"mix": rows},
        notes=[
            "the paper: at the input the first LSTM layer is favoured; at the output the "
            "weights are balanced, slightly in favour of lower layers",
            "without layer norm layers differ in scale: a weight is not a share of the sum",
            *notes,
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


def _mixes(content: TaskFolder, inside: Path | None, path: str | Path) -> list[LearnedMix]:
    """Give the mix of each place of a task."""
    use = from_json(ElmoRecipe, content.recipe.get("elmo"), what=str(path), key="elmo")
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
        names = _names(use, inside, len(powers))
        weights = dict(zip(names, (powers / powers.sum()).tolist(), strict=True))
        result.append(LearnedMix(content.task, place, weights, float(gamma), use.penalty))
    return result

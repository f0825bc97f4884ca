"""The layer weights that trained tasks have learned (paper §5.5, Figure 2)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmore.base.json import from_json
from elmore.embedding.load import read_checkpoint
from elmore.errors import ConfigError, FormatError, InputError
from elmore.report import Report, Row
from elmore.tasks.folder import read_task, runs_of
from elmore.tasks.recipe import ElmoRecipe
from elmore.training.bilm.recipe import MISSING

__all__ = ["LearnedMix", "Mixes", "mix_report"]

_TOP = "top layer"


@dataclass(frozen=True)
class LearnedMix:
    """The mix of one place in one run.

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
    """Collect the mixes of trained tasks; runs of the same kind are averaged.

    Examples:
        >>> report = Mixes().run(["runs/ner", "runs/srl"])
        >>> share = report.tables["mix"][0]["layer 1"]
    """

    name = "mix"

    def __init__(self, elmo: Any = None, **settings: Any) -> None:
        """Accept what other analyses take, and need none of it: the folders say everything."""

    def run(self, data: Sequence[str | Path]) -> Report:
        """Read trained tasks.

        Args:
            data: their folders, or those of their runs; a folder of several seeds counts as all
                of them.
        """
        if isinstance(data, str | Path) or not data:
            raise ConfigError("mix takes folders of trained tasks; name one or more")
        found = {str(run): _mixes(run) for path in data for run in runs_of(path)}
        mixes = [mix for of_run in found.values() for mix in of_run]
        if not mixes:
            raise InputError("none of these tasks was trained with ELMo; name others")
        without = [run for run, of_run in found.items() if not of_run]
        notes = [f"without ELMo, left out: {', '.join(without)}"] if without else []
        return mix_report(mixes, list(found), notes)


def mix_report(
    mixes: Sequence[LearnedMix], trained: Sequence[str], notes: Sequence[str] = ()
) -> Report:
    """Average mixes of the same task, place, layers and lambda."""
    groups: dict[tuple[str, str, tuple[str, ...], float], list[LearnedMix]] = {}
    for mix in mixes:
        # Shares of a softmax over just these layers: those of others cannot be averaged with them.
        key = (mix.task, mix.place, tuple(mix.weights), mix.penalty)
        groups.setdefault(key, []).append(mix)
    every = sorted({name for mix in mixes for name in mix.weights}, key=_order)
    rows: list[Row] = []
    metrics: dict[str, float] = {}
    for (task, place, names, penalty), group in groups.items():
        columns = {name: [mix.weights[name] for mix in group] for name in names}
        means = {name: statistics.fmean(column) for name, column in columns.items()}
        spread = [max(column) - min(column) for column in columns.values()]
        rows.append(
            {
                "task": task,
                "place": place,
                **{name: means.get(name) for name in every},
                "range": max(spread) if len(group) > 1 else None,
                "gamma": statistics.fmean(mix.gamma for mix in group),
                "lambda": penalty,
                "trainings": len(group),
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
    """Name the layers of a mix; of the last one alone, only the biLM inside knows the number."""
    if use.layers == "all":
        return tuple(f"layer {k}" for k in range(n_weights))
    if inside is None:
        return (_TOP,)
    return (f"layer {read_checkpoint(inside).config.n_layers - 1}",)


def _order(name: str) -> tuple[bool, int, str]:
    return name == _TOP, len(name), name  # layer 2 before layer 10, the unknown one last


def _mixes(path: Path) -> list[LearnedMix]:
    """The mix of each place of a trained task."""
    content = read_task(path)
    recipe = content.recipe.get("elmo")
    use = from_json(ElmoRecipe, recipe, what=str(path), key="elmo", fix=MISSING)
    places = [*(["input"] if use.input else []), *(["output"] if use.output else [])]
    result = []
    for k, place in enumerate(places):
        scores = content.weights.get(f"features.elmo.mixes.{k}.weights")
        if scores is None:
            continue  # the baseline
        gamma = content.weights.get(f"features.elmo.mixes.{k}.gamma")
        if gamma is None or gamma.ndim or scores.ndim != 1 or not scores.size:
            raise FormatError(f"'{path}' has no complete mix at its {place}; restore it")
        # Shifted before exp, so that large scores do not overflow.
        powers = np.exp(scores - scores.max())
        names = _names(use, content.inside, len(powers))
        weights = dict(zip(names, (powers / powers.sum()).tolist(), strict=True))
        result.append(LearnedMix(content.task, place, weights, float(gamma), use.penalty))
    return result

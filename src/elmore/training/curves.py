"""The curves of a run as a picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from elmore._atomic import atomic_path
from elmore._imports import require
from elmore.errors import ConfigError, InputError
from elmore.training.run import Run

__all__ = ["plot_run"]

_FORMATS = ("svg", "png", "pdf")
Line = dict[str, Any]  # of the log


def plot_run(run: Run, path: Path, *, overwrite: bool = False) -> None:
    """Draw perplexity and learning rate against tokens seen; of a task, scores and loss.

    Args:
        run: the run.
        path: picture to make; the suffix (svg, png, pdf) tells the format.
        overwrite: replace a picture that is there.
    """
    suffix = path.suffix.lstrip(".").lower() or "svg"
    if suffix not in _FORMATS:
        raise ConfigError(f"'{path}' is no picture; use the suffix {', '.join(_FORMATS)}")
    require("matplotlib", "plot", "plot")
    from matplotlib.figure import Figure

    log = run.log()
    steps = [line for line in log if "loss" in line]
    looks = [line for line in log if "heldout" in line]
    if not steps and not looks:
        raise InputError(f"'{run.path}' has no log yet; let it train a little longer")
    figure = Figure(figsize=(7, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    (_draw_language_model if run.task is None else _draw_task)(upper, lower, steps, looks)
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    what = run.recipe_name if run.task is None else f"{run.task}, {run.recipe_name}"
    figure.suptitle(f"{what}: {run.path.name}")
    with atomic_path(path, overwrite=overwrite) as temporary:
        figure.savefig(temporary, format=suffix, dpi=150)


def _draw_language_model(upper: Any, lower: Any, steps: list[Line], looks: list[Line]) -> None:
    _draw_training(upper, steps)
    _draw_heldout(upper, looks)
    upper.set_yscale("log")
    for formatter in (upper.yaxis.set_major_formatter, upper.yaxis.set_minor_formatter):
        formatter("{x:g}")
    upper.set_ylabel("perplexity")
    upper.legend(frameon=False)
    lower.plot(_millions(steps), [line["lr"] for line in steps], color="#555555", linewidth=1)
    lower.set_ylabel("learning rate")
    lower.set_xlabel("million tokens seen")


def _draw_task(upper: Any, lower: Any, steps: list[Line], looks: list[Line]) -> None:
    seen = [line["examples"] for line in looks]
    for name in looks[0]["heldout"] if looks else ():
        scores = [line["heldout"][name] for line in looks]
        upper.plot(seen, scores, marker="o", markersize=3, linewidth=1, label=name)
    upper.set_ylabel("score on development data")
    if looks:
        upper.legend(frameon=False)
    losses = [line["loss"]["loss"] for line in steps]
    lower.plot([line["examples"] for line in steps], losses, color="#555555", linewidth=1)
    lower.set_ylabel("training loss")
    lower.set_xlabel("examples seen")


def _draw_training(axes: Any, steps: list[Line]) -> None:
    """Draw the sampled loss, smoothed over about two per cent of the run."""
    if not steps:
        return
    width = max(1, len(steps) // 50)
    for name, colour in zip(steps[0]["loss"], ("#9ecae1", "#fdae6b"), strict=False):
        losses = [line["loss"][name] for line in steps]
        smooth = [
            math.exp(
                sum(losses[max(0, k - width + 1) : k + 1])
                / len(losses[max(0, k - width + 1) : k + 1])
            )
            for k in range(len(losses))
        ]
        label = f"training, {name} (sampled softmax)"
        axes.plot(_millions(steps), smooth, color=colour, linewidth=1, label=label)


def _draw_heldout(axes: Any, looks: list[Line]) -> None:
    if not looks:
        return
    for name, colour in (("forward", "#08519c"), ("backward", "#a63603")):
        key = f"{name}_perplexity"
        if key in looks[0]["heldout"]:
            values = [line["heldout"][key] for line in looks]
            label = f"held-out, {name} (full softmax)"
            axes.plot(_millions(looks), values, color=colour, marker="o", markersize=3, label=label)


def _millions(lines: list[Line]) -> list[float]:
    return [line["tokens"] / 1e6 for line in lines]

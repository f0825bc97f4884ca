"""The curves of a run as a picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from elmore.errors import InputError
from elmore.language_model.perplexity import headline
from elmore.report import check_picture, save_figure
from elmore.training.run import Run

__all__ = ["plot_run"]

Line = dict[str, Any]  # of the log


def plot_run(run: Run, path: Path, *, overwrite: bool = False) -> None:
    """Draw perplexity and learning rate against tokens seen; of a task, scores and loss.

    The suffix of the path (svg, png, pdf) is the format.
    """
    check_picture(path)
    from matplotlib.figure import Figure

    log = run.log()
    steps = [line for line in log if "loss" in line]
    evaluations = [line for line in log if "heldout" in line]
    if not steps and not evaluations:
        raise InputError(f"'{run.path}' has no log yet; let it train a little longer")
    figure = Figure(figsize=(7, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    (_draw_language_model if run.task is None else _draw_task)(upper, lower, steps, evaluations)
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    what = run.recipe_name if run.task is None else f"{run.task}, {run.recipe_name}"
    figure.suptitle(f"{what}: {run.path.name}")
    save_figure(figure, path, overwrite=overwrite)


def _draw_language_model(
    upper: Any, lower: Any, steps: list[Line], evaluations: list[Line]
) -> None:
    _draw_training(upper, steps)
    _draw_heldout(upper, evaluations)
    upper.set_yscale("log")
    # Plain numbers: a logarithmic axis labels powers of ten only.
    for formatter in (upper.yaxis.set_major_formatter, upper.yaxis.set_minor_formatter):
        formatter("{x:g}")
    upper.set_ylabel("perplexity")
    upper.legend(frameon=False)
    if evaluations and "oov_rate" in (last := evaluations[-1]["heldout"]):
        found = headline(last["perplexity"], last["without_unknown"], last["oov_rate"])
        upper.set_title(f"held-out perplexity {found}", fontsize="small")
    lower.plot(_millions(steps), [line["lr"] for line in steps], color="#555555", linewidth=1)
    lower.set_ylabel("learning rate")
    lower.set_xlabel("million tokens seen")


def _draw_task(upper: Any, lower: Any, steps: list[Line], evaluations: list[Line]) -> None:
    seen = [line["examples"] for line in evaluations]
    for name in evaluations[0]["heldout"] if evaluations else ():
        scores = [line["heldout"][name] for line in evaluations]
        upper.plot(seen, scores, marker="o", markersize=3, linewidth=1, label=name)
    upper.set_ylabel("score on development data")
    if evaluations:
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
        # The mean of losses, then exp: a mean of perplexities would follow the peaks.
        smooth = [
            math.exp(
                sum(losses[max(0, k - width + 1) : k + 1])
                / len(losses[max(0, k - width + 1) : k + 1])
            )
            for k in range(len(losses))
        ]
        label = f"training, {name} (sampled softmax)"
        axes.plot(_millions(steps), smooth, color=colour, linewidth=1, label=label)


def _draw_heldout(axes: Any, evaluations: list[Line]) -> None:
    if not evaluations:
        return
    for name, colour in (("forward", "#08519c"), ("backward", "#a63603")):
        key = f"{name}_perplexity"
        if key in evaluations[0]["heldout"]:
            values = [line["heldout"][key] for line in evaluations]
            label = f"held-out, {name} (full softmax)"
            axes.plot(
                _millions(evaluations), values, color=colour, marker="o", markersize=3, label=label
            )


def _millions(lines: list[Line]) -> list[float]:
    return [line["tokens"] / 1e6 for line in lines]

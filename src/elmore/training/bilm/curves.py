"""The curves of a run, drawn by matplotlib: in a file, or inside a notebook."""

from __future__ import annotations

import html
import io
import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.errors import InputError
from elmore.report import check_picture, save_figure
from elmore.training.display import heldout_headline

if TYPE_CHECKING:
    from elmore.training.run import Run

Line = dict[str, Any]  # of the log


def plot_run(run: Run, path: Path, *, overwrite: bool = False) -> None:
    """Draw perplexity and learning rate against tokens seen; of a task, scores and loss.

    The suffix of the path (svg, png, pdf) is the format.
    """
    check_picture(path)
    save_figure(_figure(run), path, overwrite=overwrite)


def curve_html(run: Run) -> str:
    """What a notebook shows of a run: one line, and its curve where matplotlib is installed."""
    title = f"<p>{html.escape(repr(run))}</p>"
    if not run.exists() or not run.log() or find_spec("matplotlib") is None:
        return title
    svg = io.StringIO()
    _figure(run).savefig(svg, format="svg")
    return title + svg.getvalue()[svg.getvalue().index("<svg") :]


def _figure(run: Run) -> Any:
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
    if evaluations or run.task is None:
        upper.legend(frameon=False)
    what = run.recipe_name if run.task is None else f"{run.task}, {run.recipe_name}"
    figure.suptitle(f"{what}: {run.path.name}")
    return figure


def _draw_language_model(
    upper: Any, lower: Any, steps: list[Line], evaluations: list[Line]
) -> None:
    # The sampled loss, smoothed over about two per cent of the run.
    width = max(1, len(steps) // 50)
    for name, colour in (("forward", "#9ecae1"), ("backward", "#fdae6b")):
        if steps and name in steps[0]["loss"]:
            losses = [line["loss"][name] for line in steps]
            parts = [losses[max(0, k - width + 1) : k + 1] for k in range(len(losses))]
            # The mean of losses, then exp: a mean of perplexities would follow the peaks.
            smooth = [math.exp(sum(part) / len(part)) for part in parts]
            label = f"training, {name}"
            upper.plot(_millions(steps), smooth, color=colour, linewidth=1, label=label)
    for name, colour in (("forward", "#08519c"), ("backward", "#a63603")):
        key = f"{name}_perplexity"
        if evaluations and key in evaluations[0]["heldout"]:
            values = [line["heldout"][key] for line in evaluations]
            style = {"color": colour, "marker": "o", "markersize": 3}
            label = f"held-out, {name} (full softmax)"
            upper.plot(_millions(evaluations), values, label=label, **style)
    upper.set_yscale("log")
    # Plain numbers: a logarithmic axis labels powers of ten only.
    for formatter in (upper.yaxis.set_major_formatter, upper.yaxis.set_minor_formatter):
        formatter("{x:g}")
    upper.set_ylabel("perplexity")
    if evaluations:
        last = evaluations[-1]["heldout"]
        upper.set_title(f"held-out perplexity {heldout_headline(last)}", fontsize="small")
    lower.plot(_millions(steps), [line["lr"] for line in steps], color="#555555", linewidth=1)
    lower.set_ylabel("learning rate")
    lower.set_xlabel("million tokens seen")


def _draw_task(upper: Any, lower: Any, steps: list[Line], evaluations: list[Line]) -> None:
    seen = [line["examples"] for line in evaluations]
    for name in evaluations[0]["heldout"] if evaluations else ():
        scores = [line["heldout"][name] for line in evaluations]
        upper.plot(seen, scores, marker="o", markersize=3, linewidth=1, label=name)
    upper.set_ylabel("score on development data")
    losses = [line["loss"]["loss"] for line in steps]
    lower.plot([line["examples"] for line in steps], losses, color="#555555", linewidth=1)
    lower.set_ylabel("training loss")
    lower.set_xlabel("examples seen")


def _millions(lines: list[Line]) -> list[float]:
    return [line["tokens"] / 1e6 for line in lines]

"""The curves of a run as a picture: a file by matplotlib, or SVG inside a notebook."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmore.errors import InputError
from elmore.language_model.perplexity import headline
from elmore.report import check_picture, save_figure
from elmore.training.run import Run

__all__ = ["curve_html", "plot_run"]

Line = dict[str, Any]  # of the log
# Of the picture in a notebook, in pixels.
_WIDTH, _HEIGHT, _MAX_POINTS = 480, 220, 300
_COLOURS = ("#6baed6", "#d94801", "#31a354")


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


def curve_html(run: Run) -> str:
    """What a notebook shows of a run: one line, and its curve as SVG, without matplotlib."""
    title = f"<p>{html.escape(repr(run))}</p>"
    if not run.exists():
        return title
    log, task = run.log(), run.task
    evaluations = [line for line in log if "heldout" in line]
    if task is not None:
        names = list(evaluations[0]["heldout"])[:3] if evaluations else []
        curves = {
            name: [(line["examples"], line["heldout"][name]) for line in evaluations]
            for name in names
        }
        return title + _svg(curves, "examples")
    steps = [line for line in log if "loss" in line]
    curves = {
        "training (sampled)": [
            (line["tokens"], math.exp(min(50, sum(line["loss"].values()) / len(line["loss"]))))
            for line in steps
        ],
        "held-out perplexity": [
            (line["tokens"], line["heldout"]["perplexity"]) for line in evaluations
        ],
    }
    return title + _svg(curves, "tokens", logarithmic=True)


def _svg(
    curves: dict[str, list[tuple[float, float]]], unit: str, *, logarithmic: bool = False
) -> str:
    """Lines over what was seen, with the ends of both axes written beside them."""
    points = [point for curve in curves.values() for point in curve]
    if not points:
        return "<p>no line in its log yet</p>"
    scale = math.log if logarithmic else float
    right = max(x for x, _ in points)
    low, high = (scale(end([y for _, y in points])) for end in (min, max))
    width, height = _WIDTH, _HEIGHT

    def place(x: float, y: float) -> str:
        share = (scale(y) - low) / (high - low) if high > low else 0.5
        return (
            f"{60 + (width - 70) * x / (right or 1):.1f},{height - 30 - (height - 50) * share:.1f}"
        )

    parts = [_text(55, height - 30, f"{min(y for _, y in points):.4g}", "end")]
    parts += [_text(55, 24, f"{max(y for _, y in points):.4g}", "end")]
    parts += [_text(width - 10, height - 8, f"{right:,} {unit}", "end")]
    for k, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[k % len(_COLOURS)]
        line = " ".join(place(*point) for point in _thinned(curve))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if curve and len(curve) < 50:
            dots = (place(*point).split(",") for point in curve)
            parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in dots]
        parts.append(_text(60 + 150 * k, 12, name, "start", colour))
    frame = f'<path d="M60,18V{height - 28}H{width - 8}" fill="none" stroke="currentColor"/>'
    style = f'viewBox="0 0 {width} {height}" style="width:100%;max-width:{width}px"'
    return f'<svg {style} role="img" aria-label="curve">{frame}{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, anchor: str, colour: str = "currentColor") -> str:
    style = f'font-size="11" text-anchor="{anchor}" fill="{colour}"'
    return f'<text x="{x}" y="{y}" {style}>{html.escape(text)}</text>'


def _thinned(curve: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most a few hundred points, the last one included."""
    step = -(-len(curve) // _MAX_POINTS) if curve else 1
    return [*curve[:-1:step], *curve[-1:]]


def _millions(lines: list[Line]) -> list[float]:
    return [line["tokens"] / 1e6 for line in lines]

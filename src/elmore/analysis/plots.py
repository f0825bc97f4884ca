"""A report as a picture."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmore.base.optional import require
from elmore.report import Report, check_picture, save_figure

# More labels than this are not readable in one picture.
_MAX_LABELS = 24
_OURS, _CONTROL, _SECOND = "#08519c", "#bdbdbd", "#fdae6b"
# How the names of methods begin that do not depend on the model, or on the sentence.
_CONTROLS = ("random", "static", "most frequent", "first sense", "word")
# What is drawn as bars: columns that name a row, and columns of numbers, one panel each.
_BARS = {
    "pos": (("vectors",), ("test",)),
    "wsd": (("vectors", "method"), ("ALL",)),
    "neighbors": (("word", "context"), ("cosine",)),
    "blimp": (("phenomenon",), ("forward", "backward", "both")),
    "substitutes": (("ranked by",), ("GAP", "P@1")),
}


def plot_report(report: Report, path: Path, *, overwrite: bool = False) -> None:
    """Draw what an analysis found; the suffix of the path (svg, png, pdf) is the format."""
    check_picture(path)
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    _DRAWN.get(report.name, _draw_bars)(report, figure)
    model = report.measured_on.get("model")
    figure.suptitle(f"{report.name}: {Path(str(model)).name if model else 'trained tasks'}")
    save_figure(figure, path, overwrite=overwrite)


def plot_confusions(
    pairs: Sequence[tuple[str, str]], path: Path, *, overwrite: bool = False
) -> None:
    """Draw which labels are taken for which, as a matrix of the most frequent ones.

    Args:
        pairs: the right and the predicted label of each item.
        path: picture to make.
        overwrite: replace a picture that is there.
    """
    check_picture(path)
    metrics: Any = require("sklearn.metrics", "tasks", "the picture of confusions")
    from matplotlib.figure import Figure

    names = [name for name, _ in Counter(right for right, _ in pairs).most_common(_MAX_LABELS)]
    size = 1.8 + 0.36 * len(names)
    figure = Figure(figsize=(size + 0.6, size), layout="constrained")
    # Shares of each right label, so that rare labels show too.
    metrics.ConfusionMatrixDisplay.from_predictions(
        *zip(*pairs, strict=True),
        labels=names,
        normalize="true",
        values_format=".2g",
        cmap="Blues",
        colorbar=False,
        xticks_rotation="vertical",
        text_kw={"fontsize": 7},
        ax=figure.subplots(),
    )
    save_figure(figure, path, overwrite=overwrite)


def _draw_bars(report: Report, figure: Any) -> None:
    """Bars of the columns of `_BARS`, or of the metrics, one panel below the other."""
    tables = report.tables
    names, numbers = _BARS.get(report.name, (("metric",), ("value",)))
    if report.name not in _BARS:
        tables = {"metrics": [{"metric": k, "value": v} for k, v in report.metrics.items()]}
    panels = [
        (title, rows, column)
        for title, rows in tables.items()
        for column in numbers
        if rows and names[0] in rows[0] and column in rows[0]
    ]
    heights = [len(rows) + 1.5 for _, rows, _ in panels]
    figure.set_size_inches(9, 0.5 + 0.3 * sum(heights))
    every = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, rows, column) in zip(every, panels, strict=True):
        named = [", ".join(str(row[name]) for name in names if row.get(name)) for row in rows]
        methods = names[0] in ("vectors", "ranked by")
        grey = [
            title.startswith("static") or (methods and name.startswith(_CONTROLS)) for name in named
        ]
        values, places = [float(row[column] or 0) for row in rows], range(len(rows))
        axes.barh(places, values, color=[_CONTROL if control else _OURS for control in grey])
        axes.set_yticks(places, [_plain(name, 70) for name in named], fontsize=8)
        axes.invert_yaxis()
        low, high = min(values), max(values)
        # A bar that starts elsewhere than at 0 misleads.
        axes.set_xlim(min(0, 1.1 * low), max(1.1 * high, 0.1))
        for place, value in zip(places, values, strict=True):
            text = f" {value:.1f}" if high > 1.5 else f" {value:.2f}"
            axes.text(value, place, text, va="center", fontsize=7)
        axes.grid(alpha=0.3, axis="x")
        axes.set_title(_plain(f"{title}: {column}", 90), fontsize=9, loc="left")


def _draw_study(report: Report, figure: Any) -> None:
    """The score of each system, with its deviation; the dashed line is the first one's."""
    rows = report.tables[report.name]
    figure.set_size_inches(7, 1 + 0.4 * len(rows))
    axes = figure.subplots()
    metric = list(rows[0])[1]
    # Dots, not bars: differences of a point would be lost on an axis that starts at zero.
    for place, row in enumerate(rows):
        colour = _OURS if place else _CONTROL
        score = float(row[metric] or 0)
        axes.errorbar(score, place, xerr=float(row["sd"] or 0), fmt="o", color=colour, capsize=3)
        axes.annotate(f"{score:.2f}", (score, place), (0, 6), textcoords="offset points",
                      ha="center", fontsize=8)  # fmt: skip
    axes.axvline(float(rows[0][metric] or 0), color="#555555", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(rows)), [str(row["system"]) for row in rows], fontsize=8)
    # Upside down, so that the first system is on top.
    axes.set_ylim(len(rows) - 0.5, -0.7)
    axes.margins(x=0.15)
    axes.grid(alpha=0.3, axis="x")
    axes.set_xlabel(f"{report.measured_on['task']}: {report.measured_on['score']}, per cent")


def _draw_sample_size(report: Report, figure: Any) -> None:
    """The score against the size of the data and against epochs (Figure 1)."""
    figure.set_size_inches(11, 4)
    left, right = figure.subplots(1, 2)
    rows, epochs = report.tables["sample-size"], report.tables["epochs"]
    for name, colour in (("baseline", _SECOND), ("elmo", _OURS)):
        deviations = [float(row[f"{name} sd"] or 0) for row in rows]
        sizes, scores = [row["examples"] for row in rows], [row[name] for row in rows]
        left.errorbar(sizes, scores, deviations, marker="o", color=colour, label=name)
        curve = [(row["epoch"], row[name]) for row in epochs if row[name] is not None]
        right.plot(*zip(*curve, strict=True), marker=".", color=colour, label=name)
    left.set_xscale("log")
    left.set_xticks([row["examples"] for row in rows], [f"{row['examples']:,}" for row in rows])
    left.minorticks_off()
    left.set_xlabel("training examples")
    right.set_xlabel("epochs, on all of them")
    for axes in (left, right):
        axes.set_ylabel(str(report.measured_on["score"]))
        axes.grid(alpha=0.3)
        axes.legend()


def _draw_mix(report: Report, figure: Any) -> None:
    """The weight of each layer, one row per task and place (Figure 2)."""
    rows = report.tables["mix"]
    names = [name for name in rows[0] if name.startswith("layer ")]
    figure.set_size_inches(1.5 + 1.2 * len(names), 1.2 + 0.5 * len(rows))
    axes = figure.subplots()
    # Not a number where a mix has no such layer: its cell stays empty.
    values = [
        [math.nan if (value := row[name]) is None else float(value) for name in names]
        for row in rows
    ]
    picture = axes.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(names)), names)
    titles = [f"{row['task']}, {row['place']}, λ {row['lambda']:g}" for row in rows]
    axes.set_yticks(range(len(rows)), titles)
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            if math.isnan(value):
                continue
            colour = "white" if value > 0.6 else "black"
            axes.text(x, y, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=8)
    figure.colorbar(picture, ax=axes)


def _plain(text: str, width: int) -> str:
    """Shorten, and keep matplotlib from reading dollars as formulas."""
    return textwrap.shorten(text, width, placeholder=" …").replace("$", r"\$")


_DRAWN = {
    "layers": _draw_study,
    "placement": _draw_study,
    "sample-size": _draw_sample_size,
    "mix": _draw_mix,
}

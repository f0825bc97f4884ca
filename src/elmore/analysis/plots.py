"""A report as a picture."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmore.report import Report, Row, check_picture, save_figure

__all__ = ["check_picture", "plot_confusions", "plot_report"]

# More labels than this are not readable in one picture.
_MAX_LABELS = 24
_OURS, _CONTROL, _SECOND = "#08519c", "#bdbdbd", "#fdae6b"
# How the names of rows begin that do not depend on the model.
_CONTROLS = ("random", "static", "most frequent", "first sense")


def plot_report(report: Report, path: Path, *, overwrite: bool = False) -> None:
    """Draw what an analysis found; the suffix of the path (svg, png, pdf) is the format."""
    check_picture(path)
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    _DRAWN[report.name](report, figure)
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
    from matplotlib.figure import Figure

    often = Counter(right for right, _ in pairs).most_common(_MAX_LABELS)
    names = [name for name, _ in often]
    counts = Counter(pairs)
    table = [[counts[right, found] for found in names] for right in names]
    size = 1.8 + 0.36 * len(names)
    figure = Figure(figsize=(size + 0.6, size), layout="constrained")
    axes = figure.subplots()
    axes.imshow([[n / max(1, sum(row)) for n in row] for row in table], cmap="Blues", vmin=0)
    for y, row in enumerate(table):
        for x, n in enumerate(row):
            if n:
                colour = "white" if 2 * n > sum(row) else "black"
                axes.text(x, y, f"{n}", ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xlabel("predicted")
    axes.set_ylabel("right")
    save_figure(figure, path, overwrite=overwrite)


def _draw_pos(report: Report, figure: Any) -> None:
    """Test accuracies, one panel per kind of tag."""
    kinds = [title for title in report.tables if "," not in title]
    figure.set_size_inches(7 * len(kinds), 0.8 + 0.35 * len(report.tables[kinds[0]]))
    panels = figure.subplots(1, len(kinds), squeeze=False)[0]
    for axes, kind in zip(panels, kinds, strict=True):
        rows = report.tables[kind]
        colours = [_OURS if _is_ours(row) else _CONTROL for row in rows]
        _bars(axes, [str(row["vectors"]) for row in rows], [row["test"] for row in rows], colours)
        axes.set_xlabel(f"{kind}, accuracy on test, per cent")


def _draw_wsd(report: Report, figure: Any) -> None:
    """The score on all sets, all methods one below the other."""
    rows = report.tables["wsd"]
    figure.set_size_inches(7, 0.8 + 0.3 * len(rows))
    axes = figure.subplots()
    names = [str(row["vectors"]) + (f", {row['method']}" if row["method"] else "") for row in rows]
    colours = [
        (_SECOND if row["method"] == "nearest instance" else _OURS) if _is_ours(row) else _CONTROL
        for row in rows
    ]
    _bars(axes, names, [row["ALL"] for row in rows], colours)
    axes.axvline(float(rows[0]["ALL"] or 0), color="#555555", linewidth=1, linestyle="--")
    axes.set_xlabel("ALL, F1, per cent; dashed: first sense")


def _draw_blimp(report: Report, figure: Any) -> None:
    """The accuracy on each phenomenon by all directions that the model has; chance is 50."""
    rows = report.tables["by phenomenon"]
    figure.set_size_inches(7, 0.8 + 0.35 * len(rows))
    axes = figure.subplots()
    names = [_plain(str(row["phenomenon"]), 50) for row in rows]
    _bars(axes, names, [list(row.values())[-1] for row in rows], [_OURS] * len(rows))
    axes.axvline(50, color="#555555", linewidth=1, linestyle="--")
    axes.set_xlabel(f"accuracy, {list(rows[0])[-1]}, per cent; dashed: chance")


def _draw_substitutes(report: Report, figure: Any) -> None:
    """GAP and the share of right first words, one panel each."""
    rows = report.tables["substitutes"]
    figure.set_size_inches(11, 0.8 + 0.4 * len(rows))
    names = [str(row["ranked by"]) for row in rows]
    for axes, metric in zip(figure.subplots(1, 2), ("GAP", "P@1"), strict=True):
        # The word alone, without the sentence.
        colours = [_CONTROL if name == "word" else _OURS for name in names]
        _bars(axes, names, [row[metric] for row in rows], colours)
        axes.set_xlabel(f"{metric}, per cent")


def _draw_neighbors(report: Report, figure: Any) -> None:
    """The nearest uses, one panel per source."""
    tables = {title: rows for title, rows in report.tables.items() if rows}
    figure.set_size_inches(9, 1 + sum(0.6 + 0.28 * len(rows) for rows in tables.values()))
    heights = [len(rows) + 1 for rows in tables.values()]
    panels = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, rows) in zip(panels, tables.items(), strict=True):
        static = "context" not in rows[0]
        names = [_plain(str(row["word" if static else "context"]), 70) for row in rows]
        colour = _CONTROL if static else _OURS
        _bars(axes, names, [row["cosine"] for row in rows], [colour] * len(rows))
        axes.set_title(_plain(title, 90), fontsize=9, loc="left")
    panels[-1].set_xlabel("cosine")


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
    names = [name for name in rows[0] if name.startswith("layer ") or name == "top layer"]
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


def _bars(axes: Any, names: list[str], values: list[Any], colours: list[str]) -> None:
    places = range(len(names))
    numbers = [float(value or 0) for value in values]
    axes.barh(places, numbers, color=colours)
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()
    low, high = min(numbers), max(numbers)
    axes.set_xlim(min(0, 1.1 * low), max(1.1 * high, 0.1))  # a bar that starts elsewhere misleads
    for place, number in zip(places, numbers, strict=True):
        text = f" {number:.1f}" if high > 1.5 else f" {number:.2f}"
        axes.text(number, place, text, va="center", fontsize=7)
    axes.grid(alpha=0.3, axis="x")


def _is_ours(row: Row) -> bool:
    """Whether a row measures the model itself, not a control."""
    return not str(row["vectors"]).startswith(_CONTROLS)


def _plain(text: str, width: int) -> str:
    """Shorten, and keep matplotlib from reading dollars as formulas."""
    return textwrap.shorten(text, width, placeholder=" …").replace("$", r"\$")


_DRAWN = {
    "pos": _draw_pos,
    "wsd": _draw_wsd,
    "neighbors": _draw_neighbors,
    "blimp": _draw_blimp,
    "substitutes": _draw_substitutes,
    "layers": _draw_study,
    "placement": _draw_study,
    "sample-size": _draw_sample_size,
    "mix": _draw_mix,
}

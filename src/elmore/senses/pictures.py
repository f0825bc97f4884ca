"""Pictures of senses and of change."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elmore.embedding.clustering import principal_axes
from elmore.report import check_picture, save_figure

if TYPE_CHECKING:
    from elmore.senses.change import Changes
    from elmore.senses.groups import WordSenses

# Apart for every kind of sight (Okabe and Ito).
_COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7"),
    *("#e69f00", "#56b4e9", "#000000", "#999999"),
)
# More dots hide each other, and make a file that is slow to show.
_MOST_DOTS = 1500
_MOST_WORDS = 30
_MOST_PANELS = 8


def draw_senses(found: Sequence[WordSenses], path: Path, *, overwrite: bool = False) -> None:
    """Draw the uses of each word on their two principal axes, coloured by sense.

    Args:
        found: one panel each.
        path: picture to make; the suffix (svg, png, pdf) is the format.
        overwrite: replace a picture that is there.
    """
    figure = _figure(path)
    figure.set_size_inches(9, 3.2 * len(found))
    panels = figure.subplots(len(found), 1, squeeze=False)[:, 0]
    for axes, senses in zip(panels, found, strict=True):
        rows = np.concatenate([sense.rows for sense in senses.senses])
        numbers = np.concatenate([np.full(len(one.rows), one.number) for one in senses.senses])
        if len(rows) > _MOST_DOTS:
            some = np.sort(np.random.default_rng(0).choice(len(rows), _MOST_DOTS, replace=False))
            rows, numbers = rows[some], numbers[some]
        points = principal_axes(senses.index.vectors(rows))
        for sense in senses.senses:
            here = points[numbers == sense.number]
            colour = _COLOURS[(sense.number - 1) % len(_COLOURS)]
            label = _plain(f"{sense.share:.0%}  {', '.join(sense.name[:5])}", 60)
            axes.scatter(here[:, 0], here[:, 1], s=14, alpha=0.7, color=colour, label=label)
        axes.set_title(_plain(senses.title, 90), fontsize=10, loc="left")
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        axes.set_xticks([])
        axes.set_yticks([])
    save_figure(figure, path, overwrite=overwrite)


def draw_change(found: Changes, path: Path, *, overwrite: bool = False) -> None:
    """Draw the words that changed most: how far, and the shares of senses in both corpora."""
    figure = _figure(path)
    words = found.words[:_MOST_WORDS]
    figure.set_size_inches(10, 1.2 + 0.4 * len(words))
    far, shares = figure.subplots(1, 2, sharey=True, width_ratios=(1, 2))
    places = np.arange(len(words))
    sure = [_COLOURS[0] if one.q < 0.05 else "#bdbdbd" for one in words]
    far.barh(places, [one.pairwise for one in words], color=sure)
    far.set_yticks(places, [_plain(one.word, 24) for one in words], fontsize=8)
    far.invert_yaxis()
    far.set_xlabel("mean pairwise distance; grey: q ≥ 0.05")
    for place, one in zip(places, words, strict=True):
        for offset, side in ((-0.2, 0), (0.2, -1)):
            start = 0.0
            for number, share in enumerate(one.shares[side]):
                colour = _COLOURS[number % len(_COLOURS)]
                shares.barh(place + offset, share, 0.36, left=start, color=colour)
                start += share
        if len(one.senses) > 1:
            name = " | ".join(", ".join(sense.name[:2]) for sense in one.senses)
            shares.text(1.02, place, _plain(name, 44), va="center", fontsize=7)
    shares.set_xlim(0, 1.75)
    shares.set_xticks([0, 0.5, 1])
    shares.set_xlabel("shares of senses: upper bar old, lower bar new")
    save_figure(figure, path, overwrite=overwrite)


def draw_trends(found: Changes, path: Path, *, overwrite: bool = False) -> None:
    """Draw a curve per word, its distance from the first group, and the shares of its senses."""
    figure = _figure(path)
    words, places = found.words[:_MOST_PANELS], np.arange(len(found.labels))
    several = [one for one in words if len(one.senses) > 1]
    figure.set_size_inches(1.5 + max(7.0, 0.7 * len(places)), 3.2 + 1.9 * len(several))
    heights = [3.2, *[1.9] * len(several)]
    top, *panels = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for number, one in enumerate(words):
        colour = _COLOURS[number % len(_COLOURS)]
        style = "-" if number < len(_COLOURS) else "--"
        there = ~np.isnan(one.distances)  # a line joins the groups with enough uses
        label = _plain(one.word, 24)
        top.plot(places[there], one.distances[there], style, marker="o", color=colour, label=label)
    top.set_ylabel("distance from the first", fontsize=9)
    top.tick_params(labelsize=8)
    top.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    for axes, one in zip(panels, several, strict=True):
        start = np.zeros(len(places))
        for number, sense in enumerate(one.senses):
            label = _plain(", ".join(sense.name[:3]), 40)
            share = one.shares[:, number]
            colour = _COLOURS[number % len(_COLOURS)]
            axes.bar(places, share, 0.8, bottom=start, color=colour, label=label)
            start += share
        axes.set_ylabel(_plain(one.word, 16), fontsize=9)
        axes.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"], fontsize=8)
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    for axes in (top, *panels):
        last = axes is ([top, *panels][-1])
        axes.set_xlim(-0.6, len(places) - 0.4)
        axes.set_xticks(places, found.labels if last else [""] * len(places), fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    (panels or [top])[-1].tick_params(axis="x", rotation=30 if len(places) > 6 else 0)
    save_figure(figure, path, overwrite=overwrite)


def _figure(path: Path) -> Any:
    check_picture(path)
    from matplotlib.figure import Figure

    return Figure(layout="constrained")


def _plain(text: str, width: int) -> str:
    """Shorten, and keep matplotlib from reading dollars as formulas."""
    return textwrap.shorten(text, width, placeholder=" …").replace("$", r"\$")

"""Which size of model for how much compute: a curve through the runs of `search.py --plan sizes`.

    python sizes.py results/sizes.json --draw ../docs/pictures/sizes.svg

The loss of a model with M multiplications per token after T tokens at a constant learning rate is
fitted as a + b * M^-p + c * T^-q, by least squares over the runs of all sizes. CPU hours are those
of the runs themselves; a run that shared its processor has none, and counts as its size does. The
longest run of 512/128 used Adam, whose tokens are worth 0.7 of Muon's: to reach perplexities of
319 and 200 it took 1.0 and 4.0 M tokens, Muon 0.7 and 2.8 M.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmore.report import save_figure

# Sizes hardly differ before, so these points would only say that size does not matter.
FIRST_TOKENS = 1_900_000
POWERS = np.linspace(0.1, 1.2, 56)
COLOURS = ("#9ecae1", "#4292c6", "#08519c")


@dataclass(frozen=True)
class Point:
    """A held-out perplexity of a size after some tokens."""

    dim: int
    projection: int
    tokens: float
    perplexity: float

    @property
    def size(self) -> float:
        """Multiplications of the LSTMs per token."""
        return multiplications(self.dim, self.projection)


@dataclass(frozen=True)
class Law:
    """loss = lowest + of_size * M^-size_power + of_tokens * T^-token_power."""

    lowest: float
    of_size: float
    size_power: float
    of_tokens: float
    token_power: float
    error: float

    def perplexity(self, size: float, tokens: Any) -> Any:
        """What to expect."""
        loss = self.lowest + self.of_size * size**-self.size_power
        return np.exp(loss + self.of_tokens * tokens**-self.token_power)


def multiplications(dim: int, projection: int) -> float:
    """Of two directions and two layers, per token."""
    return 4.0 * (4 * dim * 2 * projection + dim * projection)


def read_points(results: Path) -> tuple[list[Point], dict[tuple[int, int], float]]:
    """All points, and the CPU seconds per token of each size."""
    points, seconds = [], {}
    for line in results.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        size = (int(row["settings"].get("model.dim", 512)),)
        size += (int(row["settings"].get("model.projection_dim", 128)),)
        if row["cpu_s"] is not None:
            seconds[size] = row["cpu_s"] / row["points"][-1]["tokens"]
        worth = row.get("worth", 1.0)
        points += [Point(*size, worth * p["tokens"], p["perplexity"]) for p in row["points"]]
    return points, seconds


def fit(points: Sequence[Point]) -> Law:
    """Least squares; for given powers the rest is linear, so only the powers are searched."""
    sizes = np.array([p.size for p in points])
    tokens = np.array([p.tokens for p in points])
    losses = np.log([p.perplexity for p in points])
    best: Law | None = None
    for size_power in POWERS:
        for token_power in POWERS:
            columns = np.stack([np.ones_like(sizes), sizes**-size_power, tokens**-token_power], 1)
            scale = columns.max(0)
            found = np.linalg.lstsq(columns / scale, losses, rcond=None)[0] / scale
            if found.min() < 0:
                continue
            error = float(np.sqrt(np.mean((columns @ found - losses) ** 2)))
            if best is None or error < best.error:
                a, b, c = map(float, found)
                best = Law(a, b, float(size_power), c, float(token_power), error)
    if best is None:
        raise SystemExit("no curve fits; are there several sizes and budgets?")
    return best


def draw(
    points: Sequence[Point], seconds: dict[tuple[int, int], float], law: Law, path: Path
) -> None:
    """Perplexity against CPU hours, measured and fitted."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for (size, each), colour in zip(sorted(seconds.items()), COLOURS, strict=True):
        mine = [p for p in points if (p.dim, p.projection) == size]
        hours = [p.tokens * each / 3600 for p in mine]
        axes.plot(hours, [p.perplexity for p in mine], "o", color=colour, ms=4)
        far = np.geomspace(FIRST_TOKENS, 400e6, 100)
        curve = law.perplexity(multiplications(*size), far)
        axes.plot(far * each / 3600, curve, color=colour, label=f"{size[0]}/{size[1]}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = (60, 80, 100, 150, 200, 300)
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks((0.1, 1, 10), ("0.1", "1", "10"))
    axes.minorticks_off()
    axes.set_xlim(right=60)
    axes.set_xlabel("CPU hours of one core")
    axes.set_ylabel("held-out perplexity at a constant rate")
    axes.legend(title="cells / dimensions")
    save_figure(figure, path, overwrite=True)


def main() -> None:
    """Fit, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--draw", type=Path, metavar="PICTURE")
    args = parser.parse_args()
    points, seconds = read_points(args.results)
    law = fit([point for point in points if point.tokens >= FIRST_TOKENS])
    print(law)
    for point in points:
        expected = law.perplexity(point.size, point.tokens)
        print(
            f"{point.dim}/{point.projection} {point.tokens / 1e6:6.1f} M "
            f"{point.perplexity:7.1f} fitted {expected:7.1f}"
        )
    for hours in (1, 3, 10, 15, 30, 100):
        each = {
            size: float(law.perplexity(multiplications(*size), hours * 3600 / s))
            for size, s in sorted(seconds.items())
        }
        named = ", ".join(f"{d}/{p} {value:.1f}" for (d, p), value in each.items())
        print(f"{hours} CPU hours: {named}; best {min(each, key=lambda size: each[size])}")
    if args.draw is not None:
        draw(points, seconds, law, args.draw)


if __name__ == "__main__":
    main()

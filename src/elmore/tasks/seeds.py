"""The same training with several seeds: mean and standard deviation."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from elmore.errors import ConfigError
from elmore.report import Report, Row

__all__ = ["over_seeds", "sum_up"]


def over_seeds(seeds: Iterable[int], run: Callable[[int], Report]) -> Report:
    """Run a training once for each seed and sum the scores up.

    Args:
        seeds: the seeds.
        run: trains with a seed and reports.

    Returns:
        a report whose metrics are means; `NAME sd` beside each is the standard deviation of a
        sample (n - 1), and the table has every seed.
    """
    reports = [(seed, run(seed)) for seed in seeds]
    if not reports:
        raise ConfigError("no seed to train with; use one or more")
    return sum_up(reports)


def sum_up(reports: Sequence[tuple[int, Report]]) -> Report:
    """Sum up reports of single seeds."""
    first = reports[0][1]
    metrics: dict[str, float] = {}
    for name in first.metrics:
        values = [report.metrics[name] for _, report in reports]
        metrics[name] = statistics.fmean(values)
        metrics[f"{name} sd"] = statistics.stdev(values) if len(values) > 1 else 0.0
    rows: list[Row] = [{"seed": seed, **report.metrics} for seed, report in reports]
    rows.append({"seed": "mean", **{name: metrics[name] for name in first.metrics}})
    rows.append({"seed": "sd", **{name: metrics[f"{name} sd"] for name in first.metrics}})
    own = ("seed", "steps", "epochs", "best epoch")  # of a single training
    measured = {k: v for k, v in first.measured_on.items() if k not in own}
    return Report(
        name=first.name,
        metrics=metrics,
        measured_on={**measured, "seeds": [seed for seed, _ in reports]},
        tables={"seeds": rows, **_curves(reports)},
        notes=_notes(reports),
    )


def _curves(reports: Sequence[tuple[int, Report]]) -> dict[str, list[Row]]:
    """The mean of the learning curves, if there are any."""
    rows: dict[Any, list[Any]] = {}
    for _, report in reports:
        for row in report.tables.get("learning curve", ()):
            rows.setdefault(row["examples"], []).append(row)
    means: list[Row] = [
        {name: statistics.fmean(row[name] for row in same) for name in same[0]} | {"examples": n}
        for n, same in sorted(rows.items())
    ]
    return {"learning curve": means} if means else {}


def _notes(reports: Sequence[tuple[int, Report]]) -> list[str]:
    """Notes that all seeds share once, the others with their seed."""
    every = dict.fromkeys(note for _, report in reports for note in report.notes)
    found = []
    for note in every:
        seeds = [str(seed) for seed, report in reports if note in report.notes]
        found.append(note if len(seeds) == len(reports) else f"seed {', '.join(seeds)}: {note}")
    return found

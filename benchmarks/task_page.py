"""docs/tasks-results.md, from the results that tasks.py leaves."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import CONTROL, EXPERIMENTS, SYSTEMS
from md_table import table

Runs = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]


def load_results(folder: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Read all results, by experiment and system, in the order of their seeds."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault((result["experiment"], result["system"]), []).append(result)
    return found


def score_rows(results: Runs) -> list[dict[str, Any]]:
    """Compare the two systems on every test."""
    found = []
    for name, experiment in EXPERIMENTS.items():
        pair = [results.get((name, system), []) for system in SYSTEMS]
        if not all(pair):
            continue
        for place, title in enumerate(experiment.tests):
            metric = pair[0][0]["metric"]
            scores = [[run["tests"][title][metric] for run in runs] for runs in pair]
            (base, base_sd), (ours, our_sd) = map(mean_sd, scores)
            beyond = "yes" if ours - base > max(base_sd, our_sd) else "no"
            before, after, theirs = experiment.paper
            found.append(
                {
                    "task": f"{experiment.title}, {title}" if place else experiment.title,
                    "score": metric,
                    "baseline": _spread(scores[0]),
                    "+ ELMo": _spread(scores[1]),
                    "gain": f"{ours - base:+.2f}",
                    "error reduction": f"{100 * (ours - base) / (100 - base):+.1f} %",
                    "beyond sd": "one seed" if min(map(len, scores)) == 1 else beyond,
                    "the paper": "–" if place else f"{before} → {after} ({theirs} %)",
                }
            )
    return found


def control_rows(results: Runs) -> list[dict[str, Any]]:
    """Put a biLM that never saw text between the two systems."""
    titles = {SYSTEMS[0]: "baseline", CONTROL: "+ random biLM", SYSTEMS[1]: "+ ELMo"}
    found = []
    for name, experiment in EXPERIMENTS.items():
        if all((name, system) in results for system in titles):
            test = next(iter(experiment.tests))
            row = {"task": experiment.title}
            for system, title in titles.items():
                runs = results[name, system]
                row[title] = _spread([run["tests"][test][run["metric"]] for run in runs])
            found.append(row)
    return found


def mean_sd(values: Sequence[float]) -> tuple[float, float]:
    """Give mean and standard deviation of a sample."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def _spread(values: Sequence[float]) -> str:
    mean, sd = mean_sd(values)
    return f"{mean:.2f}" + (f" ± {sd:.2f}" if len(values) > 1 else "") + f" ({len(values)})"


def draw(results: Runs, path: Path) -> None:
    """Draw the baseline and ELMo of every test, with their deviations."""
    from matplotlib.figure import Figure

    from elmore.report import save_figure

    tests = [
        (f"{experiment.title}{f', {title}' if place else ''}", name, title)
        for name, experiment in EXPERIMENTS.items()
        for place, title in enumerate(experiment.tests)
        if all((name, system) in results for system in SYSTEMS)
    ]
    figure = Figure(figsize=(7, 0.9 + 0.4 * len(tests)), layout="constrained")
    axes = figure.subplots()
    for y, (_, name, title) in enumerate(tests):
        ends = []
        for system, colour in zip(SYSTEMS, ("#fdae6b", "#08519c"), strict=True):
            runs = results[name, system]
            mean, sd = mean_sd([run["tests"][title][run["metric"]] for run in runs])
            label = {"baseline": "GloVe", "elmo": "GloVe + ELMo"}[system] if not y else None
            axes.errorbar(mean, y, xerr=sd, fmt="o", color=colour, capsize=3, label=label)
            ends.append(mean)
        axes.annotate("", (ends[1], y), (ends[0], y), arrowprops={"arrowstyle": "->", "alpha": 0.4})
        axes.text(max(ends) + 1.5, y, f"{ends[1] - ends[0]:+.1f}", va="center", fontsize=8)
    axes.set_yticks(range(len(tests)), [label for label, _, _ in tests], fontsize=8)
    axes.invert_yaxis()
    axes.grid(alpha=0.3, axis="x")
    axes.margins(x=0.12, y=0.08)
    axes.set_xlabel("score on test data, per cent")
    axes.legend(loc="lower left", fontsize=8)
    save_figure(figure, path, overwrite=True)


def page(results: Runs, epoch_times: Mapping[str, Any]) -> str:
    """Write the page below its marker."""
    notes, costs = [], []
    for name, experiment in EXPERIMENTS.items():
        if any((name, system) in results for system in SYSTEMS):
            facts = {"trained on": str(experiment.train), "notes": experiment.note}
            notes.append({"task": experiment.title, **facts})
    for (name, system), runs in sorted(results.items()):
        minutes = statistics.fmean(run["cpu_seconds"] for run in runs) / 60
        epochs = statistics.fmean(len(run["dev by epoch"]) for run in runs)
        cost = {"weights": f"{runs[0]['weights']:,}", "CPU minutes": minutes}
        title = {"task": EXPERIMENTS[name].title, "system": system}
        costs.append({**title, **cost, "epochs": round(epochs)})
    lines = [
        "",
        *table(score_rows(results)),
        "",
        "![Scores of the six tasks with GloVe and with GloVe + ELMo](pictures/tasks.svg)",
        "",
        *_controls(results),
        "## Data, and overlap with the pretraining text",
        "",
        *table(notes),
        "",
        "## Time",
        "",
        *table(costs, digits=1),
    ]
    if epoch_times:
        lines += ["", "One epoch with and without the layer cache, in CPU seconds:", ""]
        titles = {name: {"task": EXPERIMENTS[name].title} for name in epoch_times}
        lines += table([titles[name] | took["seconds"] for name, took in epoch_times.items()], 1)
    machines = {_machine(run["machine"]) for runs in results.values() for run in runs}
    lines += ["", f"Measured on one thread of: {'; '.join(sorted(machines))}."]
    models = sorted(
        {run["model"] for name in EXPERIMENTS for run in results.get((name, "elmo"), [])}
    )
    lines += [f"Digest of the biLM: {', '.join(models) or '–'}.", ""]
    return "\n".join(lines)


def _controls(results: Runs) -> list[str]:
    rows = control_rows(results)
    if not rows:
        return []
    return [
        "## Does the gain come from pretraining?",
        "",
        "Yes. As a control, the same network gets a biLM with random weights, in the shape of the",
        "English model of 16 November (512 cells, 128 dimensions per direction; now 768 and 192).",
        "That makes the input wider and shows how words are spelled, but it knows nothing about",
        "language.",
        "",
        *table(rows),
        "",
    ]


def _machine(facts: Mapping[str, Any]) -> str:
    return f"{facts['cpu']} ({', '.join(facts['isa'])}), torch {facts['torch']}, {facts['date']}"

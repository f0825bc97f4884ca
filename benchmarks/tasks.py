"""Does ELMo help? The six tasks with and without it, same data, same budget, several seeds.

    python benchmarks/tasks.py --data DATA --model MODEL                  # all that is missing
    python benchmarks/tasks.py --data DATA --model MODEL --only ner --seeds 5 --jobs 2
    python benchmarks/tasks.py --data DATA --model MODEL --only ner --systems random --seeds 1
    python benchmarks/tasks.py --table                                    # as Markdown

Each training runs in a process of its own on one thread and writes one small JSON file to
benchmarks/results/tasks/. Results that are there are not computed again, and an interrupted
training resumes from its last save. Subsets are drawn once, with a seed of their own, and are the
same for all systems.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from experiments import CONTROL, EXPERIMENTS, SYSTEMS, VECTORS, task_class

from elmore.base.json import json_digest
from elmore.tasks.recipe import TaskRecipe

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "tasks"
Runs = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]


def result_path(name: str, system: str, seed: int) -> Path:
    """The file of a result."""
    return RESULTS / f"{name}-{system}-{seed}.json"


def run_one(args: argparse.Namespace, name: str, system: str, seed: int) -> None:
    """Train once, score, and write the result."""
    import torch
    from machine import facts

    from elmore import Elmo
    from elmore.analysis.probe import random_model

    torch.set_num_threads(1)
    experiment, data = EXPERIMENTS[name], Path(args.data)
    kind = task_class(experiment.task)
    settings = {**experiment.settings, **dict(item.split("=", 1) for item in args.set)}
    recipe = TaskRecipe.load("laptop", experiment.task, kind.sizes, settings)
    elmo = None if system == "baseline" else Elmo.load(args.model, threads=1)
    if elmo is not None and system == CONTROL:
        elmo = random_model(elmo)
    task = kind(elmo, recipe=recipe, vectors=data / VECTORS, cache=args.cache, seed=seed)
    train = experiment.train.examples(task, data)
    dev = experiment.dev.examples(task, data)
    if args.tiny:
        train, dev = train[: args.tiny], dev[: args.tiny]
    work = Path(args.work) / f"{name}-{system}-{seed}"
    # An interrupted training resumes; its CPU seconds are added up in a file next to it.
    spent = work.with_suffix(".seconds")
    before = float(spent.read_text()) if spent.exists() else 0.0
    started, epochs = time.process_time(), []

    def note(line: dict[str, Any]) -> None:
        if "heldout" in line:
            epochs.append(before + time.process_time() - started)
            spent.parent.mkdir(parents=True, exist_ok=True)
            spent.write_text(str(epochs[-1]))
            score = line["heldout"][task.metric]
            print(f"{name} {system} {seed}: {epochs[-1]:.0f} s, {score:.2f}", file=sys.stderr)

    report = task.fit(train, dev=dev, out=work, resume=True, progress=note)
    trained = before + time.process_time() - started
    tests = {}
    for title, part in experiment.tests.items():
        examples = part.examples(task, data)
        tests[title] = dict(task.evaluate(examples[: args.tiny or None]).metrics)
    result = {
        "experiment": name,
        "system": system,
        "seed": seed,
        "metric": task.metric,
        "tests": tests,
        "dev": dict(report.metrics),
        "dev by epoch": [row[task.metric] for row in report.tables[f"{task.metric} by epoch"]],
        "mix": [dict(row) for row in report.tables.get("mix", [])],
        "train": str(experiment.train),
        "examples": len(train),
        "settings": settings,
        "recipe": recipe_digest(recipe, system),
        "model": None if elmo is None else elmo.digest[:16],
        "weights": sum(w.numel() for w in task.network.parameters()),
        "tiny": args.tiny,
        "cpu_seconds": round(trained, 1),
        "machine": facts(),
    }
    path = result_path(name, system, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def recipe_digest(recipe: TaskRecipe, system: str) -> str:
    """Identify a recipe; the baseline does not depend on how ELMo enters."""
    content = recipe.to_json()
    if system == "baseline":
        del content["elmo"]
    return json_digest(content)[:16]


def run_missing(args: argparse.Namespace) -> int:
    """Run all trainings whose result is not there, baseline and ELMo in turn."""
    wanted = [
        (name, system, seed)
        for name in args.only or EXPERIMENTS
        for seed in range(args.seeds or EXPERIMENTS[name].seeds)
        for system in args.systems
    ]
    missing = [job for job in wanted if not result_path(*job).exists()]
    check_results(args)
    print(f"{len(wanted) - len(missing)} results are there, {len(missing)} to do", file=sys.stderr)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

    def start(job: tuple[str, str, int]) -> int:
        name, system, seed = job
        command = [sys.executable, __file__, "--one", name, system, str(seed)]
        command += ["--data", args.data, "--model", args.model, "--work", args.work]
        command += ["--cache", args.cache, "--tiny", str(args.tiny)]
        command += [part for item in args.set for part in ("--set", item)]
        code = subprocess.run(command, env=environment).returncode
        if code:
            print(f"{name} {system} {seed} ended with {code}", file=sys.stderr)
        return code

    with ThreadPoolExecutor(args.jobs) as pool:
        return int(any(list(pool.map(start, missing))))


def check_results(args: argparse.Namespace) -> None:
    """Refuse to mix results of two biLMs, recipes or sets of data in one table."""
    from elmore import Elmo

    found = load_results(RESULTS)
    models = {
        run["model"] for (_, system), runs in found.items() if system == "elmo" for run in runs
    }
    if models - {Elmo.load(args.model, threads=1).digest[:16]}:
        sys.exit(f"{RESULTS} has results of another biLM; remove them or pass --results FOLDER")
    for (name, system), runs in found.items():
        experiment = EXPERIMENTS[name]
        settings = {**experiment.settings, **dict(item.split("=", 1) for item in args.set)}
        sizes = task_class(experiment.task).sizes
        recipe = TaskRecipe.load("laptop", experiment.task, sizes, settings)
        expected = (recipe_digest(recipe, system), str(experiment.train), args.tiny)
        if any((run["recipe"], run["train"], run["tiny"]) != expected for run in runs):
            sys.exit(f"{RESULTS}/{name}-{system}-*: of another recipe or data; remove them")


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
    """Compare with a biLM that has random weights."""
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
    """Mean and standard deviation of a sample."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def _spread(values: Sequence[float]) -> str:
    mean, sd = mean_sd(values)
    return f"{mean:.2f}" + (f" ± {sd:.2f}" if len(values) > 1 else "") + f" ({len(values)})"


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lay rows out as Markdown; their keys are the names of the columns."""
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return lines + ["| " + " | ".join(map(str, row.values())) + " |" for row in rows]


def main() -> int:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", help="the folder with ner/ sst/ snli/ squad/ srl/ coref/ glove/")
    parser.add_argument("--model", help="the biLM")
    parser.add_argument("--only", action="append", choices=tuple(EXPERIMENTS))
    parser.add_argument("--systems", nargs="+", choices=(*SYSTEMS, CONTROL), default=list(SYSTEMS))
    parser.add_argument("--seeds", type=int, help="how many (default: 5 for ner and sst, else 3)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--work", default=str(Path(tempfile.gettempdir()) / "elmore-tasks"))
    parser.add_argument("--cache", default=str(Path(tempfile.gettempdir()) / "elmore-layers"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--tiny", type=int, default=0, help="use only this many examples")
    parser.add_argument("--results", help="another folder for the results")
    parser.add_argument("--table", action="store_true", help="print the tables and exit")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.results or "ELMORE_TASK_RESULTS" in os.environ:
        global RESULTS
        RESULTS = Path(args.results or os.environ["ELMORE_TASK_RESULTS"])
        os.environ["ELMORE_TASK_RESULTS"] = str(RESULTS)
    if args.table:
        results = load_results(RESULTS)
        for rows in (score_rows(results), control_rows(results)):
            print("\n".join([*table(rows), ""]) if rows else "")
        return 0
    if args.data is None or args.model is None:
        parser.error("pass --data and --model")
    if args.one:
        run_one(args, args.one[0], args.one[1], int(args.one[2]))
        return 0
    return run_missing(args)


if __name__ == "__main__":
    sys.exit(main())

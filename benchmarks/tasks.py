"""Does ELMo help? The six tasks with and without it, same data, same budget, several seeds.

    python benchmarks/tasks.py --data DATA --model MODEL                  # all that is missing
    python benchmarks/tasks.py --data DATA --model MODEL --only ner --seeds 5 --jobs 2
    python benchmarks/tasks.py --data DATA --model MODEL --only ner --systems random --seeds 1
    python benchmarks/tasks.py --write                                    # docs/tasks-results.md
    python benchmarks/tasks.py --data DATA --model MODEL --epoch-times ner

Each training runs in a process of its own on one thread and leaves one small JSON file in
benchmarks/results/tasks/; what is there is not done again, and a training that was cut off goes on
from its last save. Subsets are drawn once, by a seed of their own, and are the same for all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from experiments import CONTROL, EXPERIMENTS, SYSTEMS, VECTORS, task_class
from md_table import table
from task_page import draw, load_results, page, score_rows

from elmore.base.json import json_digest
from elmore.tasks.recipe import TaskRecipe

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "tasks"
EPOCHS = HERE / "results" / "epoch-times.json"
PAGE = HERE.parent / "docs" / "tasks-results.md"
MARKER = "<!-- Written by `python benchmarks/tasks.py --write`. -->"


def result_path(name: str, system: str, seed: int) -> Path:
    """Say where a result lies."""
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
    # A training that was cut off goes on; its CPU seconds are added up in a file beside it.
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
    """Name what a training followed; how ELMo enters is nothing to the baseline."""
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
        sys.exit(f"{RESULTS} holds results of another biLM; remove them or pass --results FOLDER")
    for (name, system), runs in found.items():
        experiment = EXPERIMENTS[name]
        settings = {**experiment.settings, **dict(item.split("=", 1) for item in args.set)}
        sizes = task_class(experiment.task).sizes
        recipe = TaskRecipe.load("laptop", experiment.task, sizes, settings)
        expected = (recipe_digest(recipe, system), str(experiment.train), args.tiny)
        if any((run["recipe"], run["train"], run["tiny"]) != expected for run in runs):
            sys.exit(f"{RESULTS}/{name}-{system}-*: of another recipe or data; remove them")


def epoch_times(args: argparse.Namespace, name: str) -> None:
    """Time an epoch without ELMo, with an empty cache of layers, and with a full one."""
    import torch
    from machine import facts

    from elmore import Elmo

    torch.set_num_threads(1)
    experiment, data = EXPERIMENTS[name], Path(args.data)
    kind = task_class(experiment.task)
    recipe = TaskRecipe.load("laptop", experiment.task, kind.sizes, {"schedule.epochs": "1"})
    elmo = Elmo.load(args.model, threads=1)
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        for title, model, cache in (
            ("baseline, no ELMo", None, None),
            ("layers computed in the epoch", elmo, folder),
            ("layers from the cache", elmo, folder),
        ):
            task = kind(model, recipe=recipe, vectors=data / VECTORS, cache=cache)
            train = experiment.train.examples(task, data)[: args.tiny or None]
            started = time.process_time()
            task.fit(train)
            times[title] = round(time.process_time() - started, 1)
    for title, seconds in times.items():
        print(f"{name}: {title}: {seconds} s")
    if args.tiny:
        return
    found = load_epochs()
    found[name] = {"seconds": times, "examples": len(train), "machine": facts()}
    EPOCHS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def load_epochs() -> dict[str, Any]:
    """Read what an epoch takes, by experiment."""
    found: dict[str, Any] = (
        json.loads(EPOCHS.read_text(encoding="utf-8")) if EPOCHS.exists() else {}
    )
    return found


def main() -> int:
    """Read the arguments and do what they say."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", help="the folder with ner/ sst/ snli/ squad/ srl/ coref/ glove/")
    parser.add_argument("--model", help="the biLM")
    parser.add_argument("--only", action="append", choices=tuple(EXPERIMENTS))
    parser.add_argument("--systems", nargs="+", choices=(*SYSTEMS, CONTROL), default=list(SYSTEMS))
    parser.add_argument("--seeds", type=int, help="how many (default: 5 for ner and sst, else 3)")
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side")
    parser.add_argument("--work", default=str(Path(tempfile.gettempdir()) / "elmore-tasks"))
    parser.add_argument("--cache", default=str(Path(tempfile.gettempdir()) / "elmore-layers"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--tiny", type=int, default=0, help="use so few examples, to try it out")
    parser.add_argument("--results", help="another folder for the results")
    parser.add_argument("--write", action="store_true", help="write docs/tasks-results.md and end")
    parser.add_argument("--table", action="store_true", help="print the table and end")
    parser.add_argument("--epoch-times", choices=tuple(EXPERIMENTS), help="time epochs and end")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.results or "ELMORE_TASK_RESULTS" in os.environ:
        global RESULTS
        RESULTS = Path(args.results or os.environ["ELMORE_TASK_RESULTS"])
        os.environ["ELMORE_TASK_RESULTS"] = str(RESULTS)
    if args.write:
        written = PAGE.read_text(encoding="utf-8").partition(MARKER)[0]  # by hand
        found = page(load_results(RESULTS), load_epochs())
        PAGE.write_text(written + MARKER + "\n" + found, encoding="utf-8")
        draw(load_results(RESULTS), PAGE.parent / "pictures" / "tasks.svg")
        return 0
    if args.table:
        print("\n".join(table(score_rows(load_results(RESULTS)))))
        return 0
    if args.data is None or args.model is None:
        parser.error("pass --data and --model")
    if args.epoch_times:
        epoch_times(args, args.epoch_times)
        return 0
    if args.one:
        run_one(args, args.one[0], args.one[1], int(args.one[2]))
        return 0
    return run_missing(args)


if __name__ == "__main__":
    sys.exit(main())

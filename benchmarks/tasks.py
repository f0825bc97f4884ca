"""Does ELMo help? The six tasks with and without it, same data, same budget, several seeds.

    python benchmarks/tasks.py --data DATA --model MODEL                  # all that is missing
    python benchmarks/tasks.py --data DATA --model MODEL --only ner --seeds 5 --jobs 2
    python benchmarks/tasks.py --write                                    # docs/tasks-results.md
    python benchmarks/tasks.py --data DATA --model MODEL --epoch-times ner

Each training runs in a process of its own on one thread and leaves one small JSON file in
benchmarks/results/tasks/; what is there is not done again, and a training that was cut off goes on
from its last save. Subsets are drawn once, by a seed of their own, and are the same for all.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmore.tasks.task import TASKS

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "tasks"
EPOCHS = HERE / "results" / "epoch-times.json"
PAGE = HERE.parent / "docs" / "tasks-results.md"
VECTORS = "glove/glove.6B.100d.40k.float16.npy"
SYSTEMS = ("baseline", "elmo")


@dataclass(frozen=True)
class Part:
    """Files of a data set, or a sample of their examples, drawn by a fixed seed."""

    files: tuple[str, ...]
    sample: int = 0

    def examples(self, task: Any, data: Path) -> list[Any]:
        """Read them."""
        from elmore.training.seeds import numpy_generator

        found = task.examples([data / name for name in self.files])
        if not self.sample or self.sample >= len(found):
            return list(found)
        name = "+".join(self.files)
        chosen = numpy_generator(0, "subset", name, self.sample).permutation(len(found))
        return [found[k] for k in sorted(chosen[: self.sample].tolist())]

    def __str__(self) -> str:
        names = ", ".join(Path(name).name.removesuffix(".xz") for name in self.files)
        return f"{self.sample:,} drawn from {names}" if self.sample else names


@dataclass(frozen=True)
class Experiment:
    """A row of the table.

    Attributes:
        task: name of the task.
        title: as the table says it.
        train, dev, tests: data; the first test is the headline.
        seeds: how many by default.
        paper: the paper's baseline and ELMo scores and relative error reduction, if comparable.
        note: what a reader must know: leaks, differences from the paper's data.
        settings: changes of the laptop recipe.
    """

    task: str
    title: str
    train: Part
    dev: Part
    tests: dict[str, Part]
    seeds: int
    paper: tuple[float, float, float]
    note: str
    settings: dict[str, str] = dataclasses.field(default_factory=dict)


EXPERIMENTS: dict[str, Experiment] = {
    "ner": Experiment(
        "ner",
        "NER, CoNLL-2003",
        Part(("ner/eng.train.xz",)),
        Part(("ner/eng.testa.xz",)),
        {"testb": Part(("ner/eng.testb.xz",))},
        5,
        (90.15, 92.22, 21.0),
        "The paper's data, complete. 4 % of the test sentences also stand in train, as in the "
        "official files; none in the pretraining text.",
    ),
    "sst": Experiment(
        "sentiment",
        "SST-5",
        Part(("sst/train.txt.xz",)),
        Part(("sst/dev.txt.xz",)),
        {"test": Part(("sst/test.txt.xz",))},
        5,
        (51.4, 54.7, 6.8),
        "The paper's data, complete. Two very short test sentences also stand in train; none in "
        "the pretraining text.",
    ),
    "snli": Experiment(
        "nli",
        "SNLI",
        Part(("snli/train.jsonl.xz",), 30_000),
        Part(("snli/dev.jsonl.xz",), 2_000),
        {
            "test": Part(("snli/test.jsonl.xz",)),
            "counterfactual": Part(
                ("snli/cad/revised_premise/test.tsv", "snli/cad/revised_hypothesis/test.tsv")
            ),
        },
        3,
        (88.0, 88.7, 5.8),
        "5.5 % of the paper's training pairs; official test. Premises of the counterfactual pairs "
        "are in part those of the test.",
    ),
    "squad": Experiment(
        "qa",
        "SQuAD 1.1",
        Part(("squad/train-44articles.json.xz",), 7_000),
        Part(("squad/train-extra.json.xz",), 1_000),
        {"dev": Part(("squad/dev-v1.1.json.xz",))},
        3,
        (81.1, 85.8, 24.9),
        "8 % of the paper's questions; epochs chosen on held-out training questions, scored on the "
        "official dev set (the paper's numbers are on the hidden test). 2.4 % of the dev context "
        "sentences are in the pretraining text. Both systems, the baseline above all, still gain "
        "in their last epoch.",
    ),
    "srl": Experiment(
        "srl",
        "SRL, EWT PropBank",
        Part(("srl/ewt.train.gold_conll.xz",), 6_000),
        Part(("srl/ewt.dev.gold_conll.xz",)),
        {"test": Part(("srl/ewt.test.gold_conll.xz",))},
        3,
        (81.4, 84.6, 17.2),
        "Another corpus than the paper's OntoNotes: web text; compare the two systems only. 47 "
        "very short test sentences also stand in train; 1 in the pretraining text.",
    ),
    "coref": Experiment(
        "coref",
        "Coreference, OntoGUM",
        Part(("coref/ontogum.train.gold_conll.xz",)),
        Part(("coref/ontogum.dev.gold_conll.xz",)),
        {"test": Part(("coref/ontogum.test.gold_conll.xz",))},
        3,
        (67.2, 70.4, 9.8),
        "Another corpus than the paper's OntoNotes, a twelfth of its size. 42 of 1,171 test "
        "sentences are in the pretraining text (no labels).",
    ),
    "litbank": Experiment(
        "coref",
        "Coreference, LitBank",
        Part(("coref/litbank.train.gold_conll.xz",)),
        Part(("coref/litbank.dev.gold_conll.xz",)),
        {"test": Part(("coref/litbank.test.gold_conll.xz",))},
        3,
        (67.2, 70.4, 9.8),
        "Novels, twice the epochs; fold 0 of ten; clusters of one mention left out. 31 of 723 "
        "test sentences are in the pretraining text (no labels).",
        {"schedule.epochs": "32", "schedule.patience": "10"},
    ),
}


def task_class(name: str) -> Any:
    """Import the class of a task."""
    module, kind, _ = TASKS[name]
    return getattr(importlib.import_module(module), kind)


def result_path(name: str, system: str, seed: int) -> Path:
    """Say where a result lies."""
    return RESULTS / f"{name}-{system}-{seed}.json"


def run_one(args: argparse.Namespace, name: str, system: str, seed: int) -> None:
    """Train once, score, and write the result."""
    import torch
    from machine import facts

    from elmore import Elmo
    from elmore._json import json_digest
    from elmore.embedding.layer_cache import model_digest
    from elmore.tasks.recipe import TaskRecipe

    torch.set_num_threads(1)
    experiment, data = EXPERIMENTS[name], Path(args.data)
    kind = task_class(experiment.task)
    settings = {**experiment.settings, **dict(item.split("=", 1) for item in args.set)}
    recipe = TaskRecipe.load("laptop", experiment.task, kind.sizes, settings)
    elmo = Elmo.load(args.model, threads=1) if system == "elmo" else None
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

    report = task.fit(train, dev=dev, out=work, resume=True, report=note)
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
        "recipe": json_digest(recipe.to_json())[:16],
        "model": None if elmo is None else model_digest(elmo)[:16],
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
    from elmore._json import json_digest
    from elmore.embedding.layer_cache import model_digest
    from elmore.tasks.recipe import TaskRecipe

    found = load_results()
    models = {run["model"] for runs in found.values() for run in runs if run["model"]}
    if models - {model_digest(Elmo.load(args.model, threads=1))[:16]}:
        sys.exit(f"{RESULTS} holds results of another biLM; remove them or pass --results FOLDER")
    for (name, system), runs in found.items():
        experiment = EXPERIMENTS[name]
        settings = {**experiment.settings, **dict(item.split("=", 1) for item in args.set)}
        sizes = task_class(experiment.task).sizes
        recipe = TaskRecipe.load("laptop", experiment.task, sizes, settings)
        expected = (json_digest(recipe.to_json())[:16], str(experiment.train), args.tiny)
        if any((run["recipe"], run["train"], run["tiny"]) != expected for run in runs):
            sys.exit(f"{RESULTS}/{name}-{system}-*: of another recipe or data; remove them")


def epoch_times(args: argparse.Namespace, name: str) -> None:
    """Time an epoch without the cache of layers, with an empty one, and with a full one."""
    import torch

    from elmore import Elmo
    from elmore.tasks.recipe import TaskRecipe

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
            started = time.perf_counter()
            task.fit(train)
            times[title] = time.perf_counter() - started
    for title, seconds in times.items():
        print(f"{name}: {title}: {seconds:.1f} s")
    if args.tiny:
        return
    found = load_epochs()
    found[name] = {title: round(seconds, 1) for title, seconds in times.items()}
    EPOCHS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


# The table ---------------------------------------------------------------------------------------


def load_results() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Read all results, by experiment and system, in the order of their seeds."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault((result["experiment"], result["system"]), []).append(result)
    return found


def load_epochs() -> dict[str, dict[str, float]]:
    """Read the seconds of one epoch, by experiment and way."""
    found: dict[str, dict[str, float]] = (
        json.loads(EPOCHS.read_text(encoding="utf-8")) if EPOCHS.exists() else {}
    )
    return found


def mean_sd(values: Sequence[float]) -> tuple[float, float]:
    """Give mean and standard deviation of a sample."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def rows(results: dict[tuple[str, str], list[dict[str, Any]]]) -> list[str]:
    """Make the rows of the main table."""
    lines = []
    for name, experiment in EXPERIMENTS.items():
        pair = [results.get((name, system), []) for system in SYSTEMS]
        if not all(pair):
            continue
        for title in experiment.tests:
            cells, means = [], []
            for runs in pair:
                mean, sd = mean_sd([run["tests"][title][run["metric"]] for run in runs])
                means.append((mean, sd))
                spread = f" ± {sd:.2f}" if len(runs) > 1 else ""
                cells.append(f"{mean:.2f}{spread} ({len(runs)})")
            gain = means[1][0] - means[0][0]
            reduction = 100 * gain / (100 - means[0][0])
            beyond = "yes" if gain > max(means[0][1], means[1][1]) else "no"
            if min(map(len, pair)) == 1:
                beyond = "one seed"
            base, with_elmo, theirs = experiment.paper
            first = title == next(iter(experiment.tests))
            paper = f"{base} → {with_elmo} ({theirs} %)" if first else "–"
            label = experiment.title if first else f"{experiment.title}, {title}"
            lines.append(
                f"| {label} | {pair[0][0]['metric']} | {cells[0]} | {cells[1]} | {gain:+.2f} | "
                f"{reduction:+.1f} % | {beyond} | {paper} |"
            )
    return lines


def page(results: dict[tuple[str, str], list[dict[str, Any]]]) -> str:
    """Write the whole page."""
    lines = [
        "# What ELMo brings to the six tasks",
        "",
        "```console",
        "$ elmore recipes show ner-laptop",
        "```",
        "",
        "Made by `benchmarks/tasks.py` from the JSON files in `benchmarks/results/tasks/`, one a",
        "training. Both systems have the same laptop recipe, data, GloVe vectors (6B, 100",
        "dimensions, 40,000 words) and most epochs; ELMo makes the input wider, and in SNLI and",
        "SQuAD the output too. Mean ± standard deviation over seeds (their number), in percent;",
        "the reduction is that of the error. Beyond sd: the gain is larger than either deviation.",
        "Small models on one core in some minutes show sign and order of the effect, not the",
        "paper's level.",
        "",
        "| task | score | baseline | + ELMo | gain | error reduction | beyond sd | the paper |",
        "|---|---|---|---|---|---|---|---|",
        *rows(results),
        "",
        "## Data and what leaks",
        "",
        "| task | trained on | to know |",
        "|---|---|---|",
    ]
    for name, experiment in EXPERIMENTS.items():
        if any((name, system) in results for system in SYSTEMS):
            lines.append(f"| {experiment.title} | {experiment.train} | {experiment.note} |")
    lines += ["", "## Time", "", "| task | system | weights | CPU minutes | epochs |"]
    lines.append("|---|---|---|---|---|")
    for (name, system), runs in sorted(results.items()):
        minutes = statistics.fmean(run["cpu_seconds"] for run in runs) / 60
        epochs = statistics.fmean(len(run["dev by epoch"]) for run in runs)
        title = EXPERIMENTS[name].title
        lines.append(
            f"| {title} | {system} | {runs[0]['weights']:,} | {minutes:.1f} | {epochs:.0f} |"
        )
    for name, times in load_epochs().items():
        lines += ["", f"One epoch of {EXPERIMENTS[name].title} on one thread, in seconds:", ""]
        lines += ["| " + " | ".join(times) + " |", "|" + "---|" * len(times)]
        lines.append("| " + " | ".join(f"{seconds:.1f}" for seconds in times.values()) + " |")
    models = sorted({run["model"] for runs in results.values() for run in runs if run["model"]})
    lines += ["", f"Digest of the biLM: {', '.join(models) or '–'}.", ""]
    return "\n".join(lines)


def main() -> int:
    """Read the arguments and do what they say."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", help="the folder with ner/ sst/ snli/ squad/ srl/ coref/ glove/")
    parser.add_argument("--model", help="the biLM")
    parser.add_argument("--only", action="append", choices=tuple(EXPERIMENTS))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--seeds", type=int, help="how many (default: 5 for ner and sst, else 3)")
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side")
    parser.add_argument("--work", default=str(Path(tempfile.gettempdir()) / "elmore-tasks"))
    parser.add_argument("--cache", default=str(Path(tempfile.gettempdir()) / "elmore-layers"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--tiny", type=int, default=0, help="use so few examples, to try it out")
    parser.add_argument("--results", help="another folder for the results")
    parser.add_argument("--write", action="store_true", help="write docs/tasks-results.md and end")
    parser.add_argument("--table", action="store_true", help="print the table's rows and end")
    parser.add_argument("--epoch-times", choices=tuple(EXPERIMENTS), help="time epochs and end")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.results or "ELMORE_TASK_RESULTS" in os.environ:
        global RESULTS
        RESULTS = Path(args.results or os.environ["ELMORE_TASK_RESULTS"])
        os.environ["ELMORE_TASK_RESULTS"] = str(RESULTS)
    if args.write:
        PAGE.write_text(page(load_results()), encoding="utf-8")
        return 0
    if args.table:
        print("\n".join(rows(load_results())))
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

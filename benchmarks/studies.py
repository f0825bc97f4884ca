"""The paper's studies with the bundled model: layers, places, sample size, learned mixes.

    python benchmarks/studies.py --data DATA --task ner        # three studies, one thread
    python benchmarks/studies.py --data DATA --task sst --seeds 3
    python benchmarks/studies.py --data DATA --mix             # of the results of tasks.py
    python benchmarks/studies.py --write                       # pictures and docs/studies.md

Each report is one JSON file in benchmarks/results/studies/; what is there is not done again, and
an interrupted study resumes with the run it was at (`--work` keeps them).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from experiments import EXPERIMENTS, VECTORS, Experiment, task_class
from md_table import table
from task_page import load_results

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "studies"
TASK_RESULTS = HERE / "results" / "tasks"
PAGE = HERE.parent / "docs" / "studies.md"
PICTURES = PAGE.parent / "pictures"
STUDIES = ("layers", "placement", "sample-size")
# (name of the task, training data, development data, changes of the laptop recipe)
TASKS = {
    "ner": ("ner", "ner/eng.train.xz", "ner/eng.testa.xz", {"schedule.epochs": "10"}),
    "sst": ("sentiment", "sst/train.txt.xz", "sst/dev.txt.xz", {}),
}
TITLES = {"ner": "NER (CoNLL-2003, span F1 on testa)", "sst": "SST-5 (accuracy on dev)"}
HEADS = {
    "layers": "Which layers",
    "placement": "Where ELMo enters",
    "sample-size": "How much data, how many epochs",
    "mix": "What the tasks learn to weigh",
}
# What the paper found, and below it what we found: to be read again when reports change.
TEXTS = {
    "layers": """
The paper (Table 2: SQuAD, SNLI, SRL): the last layer alone gains 1.0 to 3.9 points over the
baseline. An equal mix of all layers (λ = 1) gains 0.2 to 0.5 more, and a learned mix (λ = 0.001)
another 0.2. λ matters little if there is little data, as in NER.

Here: the mix makes no difference that a single run could show. NER gains 1.4 to 1.6 points in the
three cases, SST-5 2.9 to 3.4, most with the last layer alone.
""",
    "placement": """
The paper (Table 3): SNLI and SQuAD are best with ELMo at the input and the output of the RNN, SRL
with the input alone. The output alone is the worst place for SRL (80.9, below its baseline); for
the other two it is 0.2 to 0.3 points below the input.

Here: NER gains at the input, with or without the output, and a third less at the output alone.
SST-5 gains at both places and most at the output alone. Its recipe uses both, as in the paper.
""",
    "sample-size": """
The paper (Figure 1: SNLI, SRL): the smaller the training set, the larger the gain. For SRL, 1 %
of the data with ELMo is as good as 10 % without, and ELMo reaches the baseline's best score after
10 epochs; the baseline needs 486.

Here: NER agrees. The gain falls from 16 points on 140 sentences to 1.5 on all of them, and ELMo
with 30 % of the data is as good as the baseline with all of it. SST-5 differs: with 85 or 256
sentences neither system learns much, and ELMo is 1.5 to 2.6 points behind. It is ahead from 10 %
on, and most with all of the data.
""",
    "mix": """
The paper (Figure 2): at the input, tasks prefer the first LSTM layer, above all coreference and
SQuAD. At the output the weights are balanced, with a slight preference for the lower layers.

Here: coreference and SNLI prefer the first LSTM layer at the input, as in the paper, and SNLI
prefers the lower layers at the output. SQuAD gives both LSTM layers about the same weight. NER's λ
of 0.1 keeps its mix equal. Only SRL clearly prefers the last layer.
""",
}
# The page above this line is written by hand.
MARKER = "<!-- Written by `python benchmarks/studies.py --write`. -->"


def run_task(args: argparse.Namespace) -> None:
    """Run the studies of one task that have no report yet."""
    import torch

    from elmore import Elmo
    from elmore.analysis import LayerWeighting, Placement, SampleSize

    torch.set_num_threads(1)
    name, train, dev, settings = TASKS[args.task]
    elmo = Elmo.load(args.model, threads=1)
    kinds: dict[str, Any] = {
        "layers": LayerWeighting, "placement": Placement, "sample-size": SampleSize,
    }  # fmt: skip
    for study in args.only or STUDIES:
        path = RESULTS / f"{args.task}-{study}.json"
        if path.exists():
            continue
        started = time.perf_counter()
        report = kinds[study](
            elmo,
            task=name,
            settings=settings,
            vectors=Path(args.data) / VECTORS,
            seeds=args.seeds if study == "sample-size" else 1,
            # `layers` and `placement` have their baseline in common, trained once
            out=Path(args.work) / args.task / ("shares" if study == "sample-size" else "whole"),
            cache=args.cache,
        ).run([Path(args.data) / train, Path(args.data) / dev])
        RESULTS.mkdir(parents=True, exist_ok=True)
        save(path, report.to_dict())
        print(f"{args.task} {study}: {(time.perf_counter() - started) / 60:.1f} min\n{report}\n")


def run_mix(args: argparse.Namespace) -> None:
    """Collect the mixes of all trainings with ELMo that tasks.py recorded."""
    from elmore import Elmo
    from elmore.analysis.mixes import LearnedMix, mix_report
    from elmore.tasks.recipe import TaskRecipe

    elmo = Elmo.load(args.model)
    results = load_results(TASK_RESULTS)
    mixes, trained, lengths = [], [], []
    for name, experiment in EXPERIMENTS.items():
        kind = task_class(experiment.task)
        recipe = TaskRecipe.load("laptop", experiment.task, kind.sizes, experiment.settings)
        runs = results.get((name, "elmo"), [])
        for run in runs:
            trained.append(f"{name}-elmo-{run['seed']}")
            for row in run["mix"]:
                weights = {key: row[key] for key in row if key.startswith("layer ")}
                mixes.append(
                    LearnedMix(name, row["place"], weights, row["gamma"], recipe.elmo.penalty)
                )
        if runs:
            means = mean_lengths(elmo, kind(None, recipe=recipe), experiment, Path(args.data))
            lengths.append({"task": name, **means})
    if not mixes:
        sys.exit(f"no training with ELMo in {TASK_RESULTS}; run tasks.py")
    found = mix_report(mixes, trained).to_dict()
    found["tables"]["lengths"] = lengths
    RESULTS.mkdir(parents=True, exist_ok=True)
    save(RESULTS / "mix.json", found)


def mean_lengths(elmo: Any, task: Any, experiment: Experiment, data: Path) -> dict[str, float]:
    """Give the mean length of each layer's vectors on some development text of a task."""
    import numpy as np

    from elmore.training.seeds import numpy_generator

    texts = [text for e in experiment.dev.examples(task, data) for text in task.texts(e) if text]
    chosen = numpy_generator(0, "lengths").permutation(len(texts))[:300].tolist()
    layers = elmo.layers([texts[k] for k in chosen], tokenized=True)
    norms = np.concatenate([np.linalg.norm(s.values, axis=2) for s in layers], axis=1)
    return {f"layer {k}": float(mean) for k, mean in enumerate(norms.mean(1))}


def save(path: Path, report: dict[str, Any]) -> None:
    """Write a report in one go, without the folders of this machine."""
    data = report["measured_on"].get("data")
    if data:
        report["measured_on"]["data"] = [Path(name).name for name in data]
    report["measured_on"]["model"] = "english"
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


# The page ----------------------------------------------------------------------------------------


# Columns that the page calls by another name.
NAMES = {"trainings": "runs"}
SHARES = (
    "`range` is the largest difference of a weight between runs. Layers differ in length, so a\n"
    "weight is not a share of the sum: vectors of the last layer are 1.7 times as long as the\n"
    "others. The shares of the sum are:"
)


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Name the columns, and write numbers that are not scores as they are."""
    plain = {"share": "{:g} %", "lambda": "{:g}"}
    return {
        NAMES.get(key, key): plain[key].format(value) if key in plain else value
        for key, value in row.items()
    }


def shares(tables: dict[str, Any]) -> list[dict[str, Any]]:
    """What each layer adds to the sum: its weight times the mean length of its vectors."""
    lengths = {row["task"]: row for row in tables["lengths"]}
    rows = []
    for row in tables["mix"]:
        names = [name for name in row if name.startswith("layer ")]
        parts = [row[name] * lengths[row["task"]][name] for name in names]
        found = {name: part / sum(parts) for name, part in zip(names, parts, strict=True)}
        rows.append({"task": row["task"], "place": row["place"], **found})
    return rows


def write_page() -> None:
    """Draw every report, and write the page below its marker."""
    from elmore.analysis.plots import plot_report
    from elmore.tasks import Report

    lines = [PAGE.read_text(encoding="utf-8").partition(MARKER)[0] + MARKER]
    for study in (*STUDIES, "mix"):
        found = {}
        for task in (*TASKS, None):
            path = RESULTS / (f"{task}-{study}.json" if task else f"{study}.json")
            if path.exists():
                found[task] = json.loads(path.read_text(encoding="utf-8"))
        if not found:
            continue
        lines += ["", f"### {HEADS[study]}", TEXTS[study].rstrip()]
        for task, content in found.items():
            picture = f"{study}-{task}.svg" if task else f"{study}.svg"
            plot_report(Report(**content), PICTURES / picture, overwrite=True)
            lines += ["", f"**{TITLES[task]}**", ""] if task else [""]
            lines += table([shown(row) for row in content["tables"][study]])
            if study == "mix":
                lines += ["", SHARES, "", *table(shares(content["tables"]))]
            notes = [n for n in content["notes"] if study != "mix" and "the paper" not in n]
            lines += ["", *(f"- {note[0].upper()}{note[1:]}." for note in notes)] if notes else []
            lines += ["", f"![{HEADS[study]}, {task or 'all tasks'}](pictures/{picture})"]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Read the arguments and do what they say."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", help="the folder with ner/ sst/ glove/")
    parser.add_argument("--model", default=None, help="default: the bundled model")
    parser.add_argument("--task", choices=tuple(TASKS))
    parser.add_argument("--only", action="append", choices=STUDIES)
    parser.add_argument("--seeds", type=int, default=3, help="trainings below 30 %% of the data")
    parser.add_argument("--work", default=str(Path(tempfile.gettempdir()) / "elmore-studies"))
    parser.add_argument("--cache", default=str(Path(tempfile.gettempdir()) / "elmore-layers"))
    parser.add_argument("--mix", action="store_true", help="collect the mixes of tasks.py and end")
    parser.add_argument("--write", action="store_true", help="write docs/studies.md and end")
    args = parser.parse_args()
    if args.write:
        write_page()
    elif args.data is None or not (args.mix or args.task):
        parser.error("pass --data and --task, --data and --mix, or --write")
    elif args.mix:
        run_mix(args)
    else:
        run_task(args)


if __name__ == "__main__":
    main()

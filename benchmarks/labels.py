"""Accuracy of `tag` and `classify` after 50, 200 and 1,000 labelled sentences, and of baselines.

    python benchmarks/labels.py DATA --cache CACHE -o results/labels.json
    python benchmarks/labels.py --draw results/labels.json PICTURE.svg

DATA has `pos/` (UD English-EWT) and `sst/` (SST trees), both compressed. Each size is drawn with
three seeds from the training file. Scores are on the test file. The models hold out some of what
they are given, as yours would.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

from elmore import Elmo
from elmore.report import save_figure

SIZES = (50, 200, 1000)
SEEDS = (0, 1, 2)


def data_of(folder: Path, name: str) -> tuple[Any, list[Any], list[Any], dict[str, Any]]:
    """The class of a task, its training and test examples, and its arguments."""
    if name == "EWT":
        from elmore.tasks import TagExample, Tagger
        from elmore.tasks.data.columns import read_conllu

        parts = [
            [TagExample(s.words, s.upos) for s in read_conllu(folder / "pos" / file)]
            for file in ("en_ewt-ud-train.conllu.xz", "en_ewt-ud-test.conllu.xz")
        ]
        return Tagger, parts[0], parts[1], {}
    from elmore.tasks import Classifier, ClassifyExample
    from elmore.tasks.paper.sentiment import read_trees

    sides = {0: "negative", 1: "negative", 3: "positive", 4: "positive"}
    found = []
    for file in ("train.txt.xz", "test.txt.xz"):
        roots = [phrases[0] for phrases in read_trees(folder / "sst" / file)]
        found.append([ClassifyExample((t,), sides[k]) for t, k in roots if k in sides])
    return Classifier, found[0], found[1], {}


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per data set, size and seed."""
    elmo = Elmo.load(args.model, threads=1)
    rows = []
    for name in args.sets:
        kind, train, test, options = data_of(args.data, name)
        for size in args.sizes:
            for seed in SEEDS[: args.seeds]:
                part = random.Random(seed).sample(train, size)
                task = kind(elmo, cache=args.cache, seed=seed, **options)
                start = time.perf_counter()
                report = task.fit(part)
                seconds = time.perf_counter() - start
                row = {
                    "set": name,
                    "size": size,
                    "seed": seed,
                    "elmo": task.evaluate(test).metrics[task.metric],
                    "baseline": task.baseline(part, test),
                    "seconds": seconds,
                    "steps": report.measured_on["steps"],
                }
                print(json.dumps(row), flush=True)
                rows.append(row)
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Means over seeds, with their range."""
    from matplotlib.figure import Figure

    sets = list(dict.fromkeys(row["set"] for row in rows))
    titles = {"EWT": "universal tags, EWT", "SST-2": "sentiment, SST-2"}
    figure = Figure(figsize=(4.2 * len(sets), 3.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(sets), squeeze=False)[0], sets, strict=True):
        for kind, label, colour in (
            ("elmo", "elmore", "#08519c"),
            ("baseline", "most frequent tag" if name == "EWT" else "TF-IDF", "#969696"),
        ):
            sizes = sorted({row["size"] for row in rows if row["set"] == name})
            scores = [[r[kind] for r in rows if r["set"] == name and r["size"] == n] for n in sizes]
            means = [statistics.fmean(some) for some in scores]
            axes.plot(sizes, means, marker="o", color=colour, label=label)
            axes.fill_between(
                sizes, list(map(min, scores)), list(map(max, scores)), color=colour, alpha=0.2
            )
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
        axes.minorticks_off()
        axes.set_xlabel("labelled sentences")
        axes.set_ylabel("accuracy on test, per cent")
        axes.set_title(titles[name])
        axes.legend()
    save_figure(figure, path, overwrite=True)


def main() -> None:
    """Measure, or draw what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--model", default=None)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--sets", nargs="+", default=["EWT", "SST-2"])
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--draw", nargs=2, type=Path, metavar=("RESULTS", "PICTURE"))
    args = parser.parse_args()
    if args.draw:
        draw(json.loads(args.draw[0].read_text()), args.draw[1])
        return
    rows = measure(args)
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

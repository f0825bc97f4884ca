"""Search for a training recipe: many short runs, one JSON line for each.

    python search.py --data PREPARED --runs SCRATCH --plan halving
    python search.py --table
    python search.py --data PREPARED --runs SCRATCH --name muon --tokens 1_000_000 \
        --set optimizer.name=muon --set optimizer.muon_lr=0.02

Every run trains on `--tokens` tokens with one thread and with the learning rate decayed over the
last fifth. A line has the settings that differ from the base, the CPU seconds of the training
(evaluations not counted) and the held-out perplexity at several points. Runs that are already in
the results are skipped, so a search that was stopped continues with the same command.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from machine import cpu_model

from elmore.training.bilm.pretrain import pretrain
from elmore.training.bilm.recipe import Recipe

# What every run starts from, written out so that a change of the recipe does not change it.
BASE = {
    "model.dim": "512",
    "model.projection_dim": "128",
    "data.batch_tokens": "2048",
    "data.batch_rows": "64",
    "data.unroll": "32",
    "data.long_share": "0.25",
    "loss.negatives": "1024",
    "loss.dropout": "0.0",
    "optimizer.name": "adam",
    "optimizer.lr": "0.004",
    "optimizer.muon_lr": "0.02",
    "optimizer.beta2": "0.999",
    "optimizer.clip_norm": "1.0",
    "optimizer.weight_decay": "0.0",
    "schedule.warmup_tokens": "500_000",
    "schedule.decay": "linear",
    "schedule.decay_share": "0.2",
    "schedule.floor": "0.02",
    "run.autocast": "true",
}


class Trial(NamedTuple):
    """One run: its name, its length and what it changes of the base."""

    name: str
    tokens: int
    settings: dict[str, str]


MUON = {"optimizer.name": "muon", "schedule.warmup_tokens": "100_000"}
SMALL = {"data.batch_tokens": "1024", "data.batch_rows": "32"}
# What the search found.
NEW = {**MUON, **SMALL, "optimizer.lr": "0.008"}
# Batches of 2,048 tokens, which cost less per token, with higher rates.
FAST = {**MUON, "optimizer.lr": "0.012", "optimizer.muon_lr": "0.03"}
TINY = {
    "model.dim": "128",
    "model.projection_dim": "32",
    "model.filters": "[[1,16],[2,16],[3,32],[4,64]]",
    "data.batch_tokens": "512",
    "data.batch_rows": "16",
    "loss.negatives": "256",
    "optimizer.lr": "0.01",
    "schedule.warmup_tokens": "20_000",
    "schedule.decay_share": "0.5",
}


def _halving() -> list[Trial]:
    """Many short runs that change one thing, then the best of them for longer."""
    half = 500_000
    return [
        Trial("old-recipe", 1_000_000, {"data.long_share": "0"}),
        Trial("base", half, {"schedule.warmup_tokens": "100_000"}),
        Trial("muon", half, MUON),
        Trial("muon-0.03", half, {**MUON, "optimizer.muon_lr": "0.03"}),
        Trial("muon-b1024", half, {**MUON, **SMALL}),
        Trial("muon-beta2-0.99", half, {**MUON, "optimizer.beta2": "0.99"}),
        Trial("muon-lr-0.008", half, {**MUON, "optimizer.lr": "0.008"}),
        Trial("muon-neg-4096", half, {**MUON, "loss.negatives": "4096"}),
        Trial("muon-b1024-lr-0.008-m0.03", half, {**NEW, "optimizer.muon_lr": "0.03"}),
        Trial("muon-b1024-lr-0.008-n512", half, {**NEW, "loss.negatives": "512"}),
        Trial("new-recipe", 4_000_000, NEW),
        Trial("muon-lr-0.012-m0.03", half, FAST),
        Trial("new-lr-0.016", half, {**NEW, "optimizer.lr": "0.016"}),
        Trial("tiny-adam", 400_000, TINY),
        Trial("tiny-muon", 400_000, {**TINY, "optimizer.name": "muon"}),
        Trial("bfloat16", 200_000, {"schedule.warmup_tokens": "50_000"}),
        Trial("float32", 200_000, {"schedule.warmup_tokens": "50_000", "run.autocast": "false"}),
    ]


def _further() -> list[Trial]:
    """What the first search had no time for; the first run decides about the size of batches."""
    half = 500_000
    return [
        Trial("muon-lr-0.012-m0.03", 4_000_000, FAST),
        Trial("old-recipe", 4_000_000, {"data.long_share": "0"}),
        Trial("new-shared-none", half, {**NEW, "loss.shared": "none"}),
        Trial("new-long-0.1", half, {**NEW, "data.long_share": "0.1"}),
        Trial("new-wd-0.1", half, {**NEW, "optimizer.weight_decay": "0.1"}),
        Trial("new-dropout-0.1", half, {**NEW, "loss.dropout": "0.1"}),
        Trial("new-640-96", half, {**NEW, "model.dim": "640", "model.projection_dim": "96"}),
        Trial("new-384-160", half, {**NEW, "model.dim": "384", "model.projection_dim": "160"}),
    ]


def _sizes() -> list[Trial]:
    """Three sizes at several budgets each, for a curve of perplexity against compute.

    At a constant rate one run gives a point for every evaluation, where decayed runs would have to
    start again for each budget. The settings are those of the long run, whose own log continues
    the curve of 768/192.
    """
    long_run = {
        **MUON,
        "optimizer.lr": "0.008",
        "loss.negatives": "2048",
        "schedule.decay": "constant",
        "schedule.warmup_tokens": "200_000",
        "run.heldout_tokens": "20_000",
        "run.evaluate_tokens": "500_000",
    }
    budgets = ((512, 128, 4_000_000), (768, 192, 2_000_000), (1024, 256, 2_000_000))
    return [
        Trial(
            f"size-{dim}-{projection}",
            tokens,
            {**long_run, "model.dim": str(dim), "model.projection_dim": str(projection)},
        )
        for dim, projection, tokens in budgets
    ]


PLANS = {"halving": _halving(), "further": _further(), "sizes": _sizes()}


class Clock:
    """CPU seconds of the training steps, without the evaluations between them."""

    def __init__(self) -> None:
        self.points: list[dict[str, float]] = []
        self._start = self._last = time.process_time()
        self._evaluating = 0.0

    def seconds(self) -> float:
        """CPU seconds of all steps so far."""
        return self._last - self._start - self._evaluating

    def report(self, line: dict[str, Any]) -> None:
        """Take a line of the log, which comes after every step and every evaluation."""
        now = time.process_time()
        if "heldout" in line:
            self._evaluating += now - self._last
            found = line["heldout"]
            self.points.append(
                {
                    "tokens": line["tokens"],
                    "cpu_s": round(now - self._start - self._evaluating, 1),
                    "perplexity": round(found["perplexity"], 2),
                }
            )
            print(line["tokens"], self.points[-1], flush=True)
        self._last = now


def run_trial(trial: Trial, data: Path, runs: Path, seed: int) -> dict[str, Any]:
    """Train once, from the start, and describe it."""
    settings = {
        **BASE,
        "schedule.tokens": str(trial.tokens),
        # Every step is logged, so that the clock sees where an evaluation begins.
        "run.log_steps": "1",
        "run.save_minutes": "1000",
        "run.evaluate_tokens": str(max(500_000, trial.tokens // 4)),
        **trial.settings,
    }
    folder = runs / f"{trial.name}-{trial.tokens}"
    shutil.rmtree(folder, ignore_errors=True)
    clock = Clock()
    pretrain(
        data,
        folder,
        recipe=Recipe.load("laptop", settings),
        seed=seed,
        threads=1,
        progress=clock.report,
    )
    shutil.rmtree(folder / "resume", ignore_errors=True)
    shutil.rmtree(folder / "best", ignore_errors=True)
    return {
        "name": trial.name,
        "tokens": trial.tokens,
        "settings": {k: v for k, v in trial.settings.items() if BASE.get(k) != v},
        "seed": seed,
        "cpu_s": round(clock.seconds(), 1),
        "perplexity": clock.points[-1]["perplexity"],
        "points": clock.points,
        "cpu": cpu_model(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }


def search(trials: list[Trial], args: argparse.Namespace) -> None:
    """Run what is not in the results yet, in turn."""
    for trial in trials:
        done = [json.loads(line) for line in _lines(args.results)]
        if any((d["name"], d["tokens"], d["seed"]) == (*trial[:2], args.seed) for d in done):
            continue
        print(f"{trial.name}, {trial.tokens} tokens: {trial.settings}", flush=True)
        result = run_trial(trial, args.data, args.runs, args.seed)
        with args.results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(result) + "\n")


def table(path: Path) -> str:
    """The results as a Markdown table, runs of equal length together."""
    rows = sorted((json.loads(line) for line in _lines(path)), key=lambda d: d["tokens"])
    text = "| run | tokens | changed | perplexity | CPU s |\n|---|---|---|---|---|\n"
    for row in rows:
        changed = ", ".join(f"`{key}={value}`" for key, value in row["settings"].items())
        text += f"| {row['name']} | {row['tokens'] / 1e6:g} M | {changed} | "
        text += f"{row['perplexity']:.1f} | {row['cpu_s']:.0f} |\n"
    return text


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of `elmore prepare`")
    parser.add_argument("--runs", type=Path, help="folder for the runs themselves")
    parser.add_argument("--table", action="store_true", help="only print the results")
    parser.add_argument("--plan", choices=PLANS)
    parser.add_argument("--name", help="a single run instead of a plan")
    parser.add_argument("--tokens", type=int, default=500_000)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "-o", dest="results", type=Path, default=Path(__file__).parent / "results/search.json"
    )
    args = parser.parse_args()
    if args.table:
        print(table(args.results))
        return
    if args.data is None or args.runs is None:
        parser.error("pass --data and --runs")
    if (args.plan is None) == (args.name is None):
        parser.error("pass either --plan or --name")
    settings = dict(pair.split("=", 1) for pair in args.set)
    search(PLANS[args.plan] if args.plan else [Trial(args.name, args.tokens, settings)], args)


if __name__ == "__main__":
    main()

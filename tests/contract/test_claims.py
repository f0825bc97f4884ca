"""The figures in the README are those of the result files."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
TASKS = {"NER": "ner", "SST-5": "sst", "SNLI": "snli", "SQuAD": "squad", "SRL": "srl"}
TASKS["coreference"] = "coref"
ALTERNATIVES = {
    "parts of speech, %": ("pos", "UPOS", ".1f"),
    "word senses, F1": ("wsd", "WSD ALL, nearest", ".1f"),
    "similar sentence found first, %": ("retrieval", "SNLI retrieval, first", ".1f"),
    "words per CPU second": ("speed", "words per CPU second", ",.0f"),
}


def table(page: Path, heading: str) -> dict[str, list[str]]:
    """The first table below a heading: cells of each row, by its first cell."""
    text = page.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1]
    lines = [line for line in text.split("\n## ")[0].split("\n") if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: [cell.replace("**", "") for cell in row[1:]] for row in rows}


def scores(task: str, system: str) -> list[float]:
    found: list[float] = []
    for path in sorted((RESULTS / "tasks").glob(f"{task}-{system}-*.json")):
        run: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found.append(next(iter(run["tests"].values()))[run["metric"]])
    return found


def test_the_table_of_tasks() -> None:
    shown = table(ROOT / "README.md", "What ELMo adds")
    for column, name in enumerate(shown[""]):
        means = {}
        for title, system in (("GloVe", "baseline"), ("GloVe and ELMo", "elmo")):
            found = scores(TASKS[name], system)
            means[system] = statistics.fmean(found)
            expected = f"{means[system]:.1f} ± {statistics.stdev(found):.1f}"
            assert shown[title][column] == expected
        reduction = (means["elmo"] - means["baseline"]) / (100 - means["baseline"])
        assert shown["error reduction"][column] == f"{100 * reduction:.0f} %"


@pytest.mark.parametrize("title", ALTERNATIVES)
def test_the_table_of_alternatives(title: str) -> None:
    results = json.loads((RESULTS / "alternatives.json").read_text(encoding="utf-8"))
    part, name, form = ALTERNATIVES[title]
    shown = table(ROOT / "README.md", "When to use it, and when not")[title]
    for cell, system in zip(shown, ("elmo", "minilm", "glove", "tfidf"), strict=True):
        value = results[system].get(part, {}).get(name)
        assert cell == ("–" if value is None else format(value, form))

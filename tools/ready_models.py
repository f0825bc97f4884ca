"""Train the taggers and classifiers that ship with elmore, score them, and write their cards.

    python tools/ready_models.py DATA [--only pos chunk sentiment sentiment-5] [--cache CACHE]

DATA has `pos/` (UD English-EWT), `srl/` (English Web Treebank with parses), `sst/` (SST trees),
`coref/` (OntoGUM) and `ner/` (CoNLL-2003; scored on, never trained on); 60 sentences about other
things than films are in `tools/data`. Each model goes to src/elmore/models/TASK-NAME in
float16, without the biLM: it refers to the included `english` by its digest. All four take about
ten minutes on one core. Run it again whenever `english` changes, and commit the folders.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from elmore import Elmo
from elmore.tasks import Classifier, ClassifyExample, TagExample, Tagger
from elmore.tasks.data.columns import read_conllu
from elmore.tasks.paper.sentiment import read_trees
from elmore.tasks.recipe import TaskRecipe
from elmore.text.reading import numbered_lines
from elmore.text.records import split_columns

MODELS = Path(__file__).resolve().parents[1] / "src" / "elmore" / "models"
REVIEWS = Path(__file__).resolve().parent / "data" / "reviews.csv"
FIVE = ("very negative", "negative", "neutral", "positive", "very positive")


@dataclass(frozen=True)
class Ready:
    """A model to include: its data, its settings, and the text of its card."""

    task: Any
    title: str
    labels: str
    data: str
    licence: str
    limits: str
    train: Callable[[Path], list[Any]]
    dev: Callable[[Path], list[Any]]
    tests: dict[str, Callable[[Path], list[Any] | Path]]
    use: str
    settings: dict[str, str] = field(default_factory=dict)


# --------------------------------------------------------------------- parts of speech


def tagged(file: str) -> Callable[[Path], list[TagExample]]:
    """Universal and Penn tags of a file of EWT."""

    def read(data: Path) -> list[TagExample]:
        return [
            TagExample(s.words, tuple(f"{u}+{x}" for u, x in zip(s.upos, s.xpos, strict=True)))
            for s in read_conllu(data / "pos" / file)
        ]

    return read


def penn(data: Path) -> list[TagExample]:
    """Penn tags of another treebank, GUM; its universal tags are not in the file."""
    found, tokens, tags = [], [], []
    for _, line in numbered_lines(data / "coref" / "ontogum.test.gold_conll.xz"):
        cells = split_columns(line)
        if len(cells) > 5 and not line.startswith("#"):
            tokens.append(cells[3])
            tags.append(f"?+{cells[4]}")
        elif tokens:
            found.append(TagExample(tuple(tokens), tuple(tags)))
            tokens, tags = [], []
    return found


# --------------------------------------------------------------------- phrases

PHRASES = {
    **{name: name for name in "NP VP PP ADJP ADVP PRT SBAR INTJ CONJP".split()},
    **{"WHNP": "NP", "WHPP": "PP", "WHADVP": "ADVP", "WHADJP": "ADJP"},
}
# Inside a noun phrase these are part of it.
INSIDE = ("NML", "NX", "QP", "NAC", "ADJP")
PUNCTUATION = {",", ".", ":", "``", "''", "-LRB-", "-RRB-", "HYPH", "NFP", "#", "$", "SYM", "LS"}


def chunks(rows: list[list[str]]) -> TagExample:
    """Flat phrases of a tree, in the manner of CoNLL-2000; rows have word, tag and parse."""
    nodes: list[tuple[str, int]] = []  # open brackets: label and number
    number = 0
    marks: list[tuple[str, int]] = []
    for _, pos, parse in rows:
        for part in re.findall(r"\(([^()*]+)|(\*)|(\))", parse):
            if part[0]:
                number += 1
                nodes.append((part[0].split("-")[0], number))
            elif part[1]:
                marks.append(_phrase(nodes, pos))
            elif nodes:
                nodes.pop()
    tags, before = [], ("O", 0)
    for (_, pos, _), mark in zip(rows, marks, strict=True):
        if pos == "CC" and mark != before:  # between phrases, not inside one
            mark = ("O", 0)
        if mark[0] == "O":
            tags.append("O")
        else:
            same = mark == before and pos != "POS"
            tags.append(f"{'I' if same else 'B'}-{mark[0]}")
        before = mark
    return TagExample(tuple(row[0] for row in rows), tuple(tags))


def _phrase(nodes: list[tuple[str, int]], pos: str) -> tuple[str, int]:
    """The phrase of a word and the number of its node; verbs next to each other are one phrase."""
    if pos in PUNCTUATION and pos not in ("$", "#", "HYPH"):
        return "O", 0
    path = list(nodes)
    while len(path) > 1 and path[-1][0] in INSIDE and any(n[0] == "NP" for n in path[-3:-1]):
        path.pop()
    label = PHRASES.get(path[-1][0], "O") if path else "O"
    if path and path[-1][0] in ("SQ", "SINV") and pos.startswith(("VB", "MD")):
        return "VP", 0  # the first verb of a question
    if pos == "POS" and len(path) > 1 and path[-2][0] == "NP":
        return "NP", path[-2][1]  # 's belongs to what follows
    if label == "VP" and not pos.startswith(("VB", "MD", "TO", "RB")):
        return "O", 0
    if label in ("SBAR", "PP") and pos not in ("IN", "TO", "VBG", "RB"):
        return "O", 0
    return (label, 0) if label == "VP" else (label, path[-1][1]) if label != "O" else ("O", 0)


def parsed(file: str) -> Callable[[Path], list[TagExample]]:
    """Phrases of a file of the English Web Treebank."""

    def sentences(data: Path) -> Iterator[list[list[str]]]:
        rows: list[list[str]] = []
        for _, line in numbered_lines(data / "srl" / file):
            cells = split_columns(line)
            if line.startswith("#") or not cells:
                if rows:
                    yield rows
                rows = []
            else:
                rows.append([cells[3], cells[4], cells[5]])
        if rows:
            yield rows

    return lambda data: [chunks(rows) for rows in sentences(data)]


def conll_chunks(data: Path) -> list[TagExample]:
    """The chunks of the test file of CoNLL-2003 (news, tagged automatically)."""
    task = Tagger(None, recipe=_recipe(Tagger, {"words.dim": "8"}), label="3")
    return task.examples(data / "ner" / "eng.testb.xz")


# --------------------------------------------------------------------- sentiment


def rated(file: str, two: bool, phrases_from: int = 0) -> Callable[[Path], list[ClassifyExample]]:
    """Sentences of SST with two or five labels; with `phrases_from`, phrases of so many tokens too.

    Phrases of four tokens or more help: on development data two classes have 86.8 instead of 83.4
    with sentences alone, five have 48.0 instead of 45.0. One seed each.
    """

    def name(label: int) -> str:
        return FIVE[label] if not two else "positive" if label > 2 else "negative"

    def read(data: Path) -> list[ClassifyExample]:
        trees = list(read_trees(data / "sst" / file))
        found = {tree[0]: None for tree in trees}
        if phrases_from:
            others = {p: None for tree in trees for p in tree[1:] if len(p[0]) >= phrases_from}
            found |= others
        return [
            ClassifyExample((tokens,), name(label))
            for tokens, label in found
            if not two or label != 2
        ]

    return read


EWT = "UD English-EWT 2.16: web text (answers, mail, newsgroups, reviews, weblogs)"
SHARE = "CC BY-SA 4.0 (annotations); the model is a work of its own under Apache 2.0"
WEB = "Trained on web text of the 2000s in American English; other varieties are read less well."
# A word is in many phrases of its sentence: 12 of them are about two sentences.
WITH_PHRASES = {"optimizer.lr": "0.001", "schedule.epochs": "2", "words.min_count": "12"}
READY: dict[str, Ready] = {
    "pos": Ready(
        Tagger,
        "Parts of speech",
        "joined universal and Penn tags, such as PROPN+NNP",
        EWT,
        SHARE,
        f"{WEB} Contractions are expected as two tokens (do n't), as `elmore predict` splits them.",
        tagged("en_ewt-ud-train.conllu.xz"),
        tagged("en_ewt-ud-dev.conllu.xz"),
        {"EWT test": tagged("en_ewt-ud-test.conllu.xz"), "GUM test, other genres": penn},
        'elmore.tagger("pos").predict(["Ada lives in Rome."])[0].tags',
        {
            "schedule.epochs": "14",
            "schedule.patience": "3",
            "schedule.halve_patience": "1",
            "optimizer.lr": "0.002",
        },
    ),
    "chunk": Ready(
        Tagger,
        "Phrases",
        "spans NP, VP, PP, ADVP, ADJP, SBAR, PRT, INTJ, CONJP",
        "the trees of the English Web Treebank (PropBank release), made flat by rules in "
        "tools/ready_models.py",
        SHARE,
        f"{WEB} The phrases come from simple rules, which differ in details from CoNLL-2000.",
        parsed("ewt.train.gold_conll.xz"),
        parsed("ewt.dev.gold_conll.xz"),
        {
            "EWT test": parsed("ewt.test.gold_conll.xz"),
            "CoNLL-2003 test, news (its chunks are automatic and IOB1)": conll_chunks,
        },
        'elmore.tagger("chunk").predict(["The old dog slept."])[0].spans',
        {"schedule.epochs": "8", "schedule.patience": "2"},
    ),
    "sentiment": Ready(
        Classifier,
        "Sentiment, two classes",
        "negative, positive",
        "Stanford Sentiment Treebank (Socher et al. 2013): sentences and phrases of film reviews",
        "none stated; used for research everywhere. The model is Apache 2.0.",
        "Film reviews only, single sentences, no neutral class: every text gets a side. On "
        "products, places and services it is much worse, and takes plain praise for criticism.",
        rated("train.txt.xz", True, 4),
        rated("dev.txt.xz", True),
        {
            "SST-2 test": rated("test.txt.xz", True),
            "products, places and services: 60 sentences written for this card": lambda _: REVIEWS,
        },
        'elmore.classifier("sentiment").predict(["A joy from start to end."])[0].label',
        WITH_PHRASES,
    ),
    "sentiment-5": Ready(
        Classifier,
        "Sentiment, five classes",
        ", ".join(FIVE),
        "Stanford Sentiment Treebank (Socher et al. 2013): sentences and phrases of film reviews",
        "none stated; used for research everywhere. The model is Apache 2.0.",
        "Film reviews only. Neighbouring classes are often confused, by people too.",
        rated("train.txt.xz", False, 4),
        rated("dev.txt.xz", False),
        {"SST-5 test": rated("test.txt.xz", False)},
        'elmore.classifier("sentiment-5").predict(["A joy from start to end."])[0].label',
        WITH_PHRASES,
    ),
}


def _recipe(kind: Any, settings: dict[str, str]) -> TaskRecipe:
    return TaskRecipe.load("laptop", kind.name, kind.sizes, settings)


def make(name: str, args: argparse.Namespace, elmo: Elmo) -> dict[str, Any]:
    """Train, score and store one model; returns its figures."""
    ready = READY[name]
    start = time.process_time()
    recipe = _recipe(ready.task, ready.settings)
    task = ready.task(elmo, recipe=recipe, cache=args.cache, seed=0)
    report = task.fit(
        ready.train(args.data),
        dev=ready.dev(args.data),
        progress=lambda line: (
            print(name, line["heldout"], flush=True) if "heldout" in line else None
        ),
    )
    minutes = (time.process_time() - start) / 60
    place = MODELS / f"{task.name}-{name}"
    with tempfile.TemporaryDirectory() as temporary:
        task.save(Path(temporary, "m"), with_elmo=False, precision="float16")
        stored = ready.task.load(Path(temporary, "m"), elmo=elmo, cache=args.cache)
        scores = {title: stored.evaluate(read(args.data)) for title, read in ready.tests.items()}
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(Path(temporary, "m"), place)
    figures = {
        "scores": {title: dict(found.metrics) for title, found in scores.items()},
        "baseline": {row["model"]: row[task.metric] for row in report.tables["against a baseline"]},
        "bytes": sum(file.stat().st_size for file in place.iterdir()),
        "cpu minutes": minutes,
    }
    (place / "README.md").write_text(card(name, ready, task, figures), encoding="utf-8")
    return figures


def card(name: str, ready: Ready, task: Any, figures: dict[str, Any]) -> str:
    """The card of a model, in the form of the Hugging Face hub."""
    names = {"accuracy 1": "accuracy of universal tags", "accuracy 2": "accuracy of Penn tags"}
    rows = [
        f"| {title} | {names.get(metric, metric)} | {value:.2f} |"
        for title, found in figures["scores"].items()
        for metric, value in found.items()
        if not (title.startswith("GUM") and metric != "accuracy 2")
    ]
    simple = "; ".join(f"{who} {value:.2f}" for who, value in figures["baseline"].items())
    kind = "token-classification" if task.name == "tag" else "text-classification"
    head = {"library_name": "elmore", "pipeline_tag": kind, "language": ["en"]}
    head |= {"license": "apache-2.0", "tags": ["elmo", "elmore", kind]}
    return "\n".join(
        [
            "---",
            *(f"{key}: {json.dumps(value)}" for key, value in head.items()),
            "---",
            f"\n# {ready.title} (`{name}`)\n",
            f"```python\nimport elmore\n{ready.use}\n```\n",
            "| | |\n|---|---|",
            f"| labels | {ready.labels} |",
            f"| data | {ready.data} |",
            f"| licence of the data | {ready.licence} |",
            f"| biLM | the included `english`, digest `{(task_digest(task))[:16]}` |",
            f"| size | {figures['bytes'] / 1e6:.2f} MB, float16 |",
            f"| development data | {task.metric}: {simple} |",
            f"| limits | {ready.limits} |\n",
            "| test data | score | |\n|---|---|---:|",
            *rows,
            "\nTrained by `tools/ready_models.py` with seed 0.\n",
        ]
    )


def task_digest(task: Any) -> str:
    """The digest of the biLM that a task was trained with."""

    return task.elmo.digest


def main() -> None:
    """Make all models, or some."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(READY), default=list(READY))
    parser.add_argument("--cache", type=Path, help="keep the layers here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    elmo = Elmo.load(threads=1)
    path = Path(__file__).parent / "ready_models.json"
    for name in args.only:
        found = make(name, args, elmo)
        print(name, json.dumps(found), flush=True)
        # Read again each time: another process may have written what it made.
        known = {**(json.loads(path.read_text()) if path.is_file() else {}), name: found}
        path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

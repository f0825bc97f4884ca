"""Eight examples of each task, as files in the formats of the trade, and recipes to learn them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from elmore import Elmo
from elmore.tasks import TASKS, folder
from elmore.tasks.recipe import TaskRecipe

NER = """-DOCSTART- -X- O O

Ada NNP I-NP I-PER
Lovelace NNP I-NP I-PER
lives VBZ I-VP O
in IN I-PP O
Rome NNP I-NP I-LOC
. . O O

Rome NNP I-NP I-LOC
fell VBD I-VP O

Acme NNP I-NP I-ORG
Rome NNP I-NP I-ORG
Paris NNP I-NP B-ORG
hired VBD I-VP O
Bo NNP I-NP I-PER

Paris NNP I-NP I-LOC

It PRP I-NP O
fell VBD I-VP O

The DT I-NP O
old JJ I-NP O
Acme NNP I-NP I-ORG
bank NN I-NP I-ORG
fell VBD I-VP O

Bo NNP I-NP I-PER
met VBD I-VP O
Ada NNP I-NP I-PER

Yes UH O O
"""
SENTIMENT = """(4 (2 A) (4 (4 true) (3 joy)))
(0 (2 A) (0 (0 dull) (1 mess)))
(2 (2 It) (2 (2 is) (2 (2 a) (2 film))))
(3 (3 Good) (2 film))
(1 (1 Bad) (2 film))
(4 (4 Great) (2 (2 -LRB-) (2 (2 really) (2 -RRB-))))
(0 (0 Awful) (2 film))
(2 Film)
"""
CLASSIFY = [
    ("A true joy", "good"),
    ("A dull mess", "bad"),
    ("Good film. I liked it.", "good"),
    ("Bad film. I left.", "bad"),
    ("Great (really)", "good"),
    ("Awful film", "bad"),
    ("Joy", "good"),
    ("Mess", "bad"),
]
NLI = [
    ("A man sleeps .", "A man is awake .", "contradiction"),
    ("A man sleeps .", "A person sleeps .", "entailment"),
    ("A man sleeps .", "A man dreams of rain .", "neutral"),
    ("Two dogs run .", "Dogs are running .", "entailment"),
    ("Two dogs run .", "Cats sit .", "contradiction"),
    ("Two dogs run .", "They chase a cat .", "neutral"),
    ("It rains", "It is wet", "neutral"),
    ("Yes", "No", "contradiction"),
]
SRL_ROWS = [
    ("She sold the car", {1: ["(ARG0*)", "(V*)", "(ARG1*", "*)"]}),
    ("He slept", {1: ["(ARG0*)", "(V*)"]}),
    ("Dogs chase cats daily", {1: ["(ARG0*)", "(V*)", "(ARG1*)", "(ARGM-TMP*)"]}),
    ("No predicate here", {}),
    (
        "They said it rained",
        {1: ["(ARG0*)", "(V*)", "(ARG1*", "*)"], 3: ["*", "*", "(ARG1*)", "(V*)"]},
    ),
    ("Rain fell", {1: ["(ARG1*)", "(V*)"]}),
    ("Go", {0: ["(V*)"]}),
    ("Cars he sold yesterday", {2: ["(ARG1*)", "(ARG0*)", "(V*)", "(ARGM-TMP*)"]}),
]
QA = [
    (
        "The tower stands in Paris, France. It is tall.",
        [("Where is the tower?", "Paris"), ("What is tall?", "tower")],
    ),
    ("Ada was born in 1815 in London.", [("When was Ada born?", "1815"), ("Where?", "London")]),
    ("Bo sold three old cars.", [("Who sold cars?", "Bo"), ("How many?", "three")]),
    (
        "Rain fell on the old bank.",
        [("What fell?", "Rain"), ("On what did it fall?", "the old bank")],
    ),
]
COREF = [
    [("Ada met Bo .", "(0) - (1) -"), ("She liked him .", "(0) - (1) -")],
    [("Bo saw the old bank .", "(0) - (1 - 1) -"), ("It fell on him .", "(1) - - (0) -")],
    [("Nothing here .", "- - -")],
    [("The dog ran .", "(0 0) - -"), ("It barked .", "(0) - -")],
    [("Bo said he left .", "(0) - (0) - -")],
    [("Rain fell .", "- - -"), ("The bank stood .", "- - - -")],
    [("The bank fell .", "(2 2) - -"), ("It was old .", "(2) - - -")],
    [("Ada and her dog ran .", "(0) - (1|(0) 1) - -")],
]
# What is changed in the laptop recipes: small, without dropout, quick to learn by heart.
QUICK = {
    "elmo.dropout": "0.0",
    "words.dim": "12",
    "words.min_count": "1",
    "characters.dim": "4",
    "schedule.epochs": "40",
    "schedule.patience": "0",
    "schedule.halve_patience": "-1",
    "optimizer.lr": "0.01",
    "words.trainable": "true",
    "optimizer.average": "0.0",
    "data.batch_size": "4",
    "run.log_steps": "5",
}
SIZES = {
    # A mix, so that what all tasks promise of mixes is tested here too.
    "tag": {"model.hidden": "24", "elmo.layers": '"all"'},
    "classify": {"model.hidden": "24", "elmo.layers": '"all"'},
    "ner": {"model.lstm": "[12]", "characters.filters": "[[3, 8]]"},
    "sentiment": {"model.dim": "20", "model.hidden": "[12]"},
    "nli": {"model.dim": "12"},
    "srl": {"model.dim": "16", "model.n_layers": "2", "model.predicate_dim": "8"},
    "qa": {"model.dim": "8"},
    "coref": {
        "model.dim": "12",
        "model.hidden": "12",
        "model.feature_dim": "4",
        "model.max_width": "3",
        "model.spans_per_token": "3.0",  # all: a pruned mention cannot be learned
        "characters.filters": "[[2, 4]]",
        "data.batch_size": "2",
    },
}
NAMES = tuple(TASKS)
task_class: Any = folder.task_class


def quick_recipe(name: str, **changes: str) -> TaskRecipe:
    """A recipe that learns eight examples in a second or two; changes such as model__dim."""
    sizes = task_class(name).sizes
    dropouts = [field.name for field in dataclasses.fields(sizes) if "dropout" in field.name]
    settings = {**QUICK, **{f"model.{key}": "0.0" for key in dropouts}, **SIZES[name]}
    settings.update({key.replace("__", "."): value for key, value in changes.items()})
    return TaskRecipe.load("laptop", name, sizes, settings)


def make(name: str, elmo: Elmo | None = None, *, seed: int = 0, **changes: str) -> Any:
    """A task with a quick recipe, not trained yet."""
    return task_class(name)(elmo, recipe=quick_recipe(name, **changes), seed=seed)


def write_data(name: str, folder: Path) -> Path:
    """Write the eight examples of a task; give the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.data"
    path.write_text(_TEXTS[name]())
    return path


def _classify() -> str:
    rows = [{"text": text, "label": label} for text, label in CLASSIFY]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def _nli() -> str:
    fields = ("sentence1", "sentence2", "gold_label")
    return "".join(json.dumps(dict(zip(fields, pair, strict=True))) + "\n" for pair in NLI)


def _columns(tokens: list[str], predicates: dict[int, list[str]], clusters: list[str]) -> str:
    lines = []
    for k, token in enumerate(tokens):
        roleset = "x.01" if k in predicates else "-"
        roles = [column[k] for column in predicates.values()]
        row = ["doc", "0", str(k), token, "X", "-", "-", roleset, "-", "-", "*", *roles]
        lines.append("\t".join([*row, clusters[k]]))
    return "\n".join(lines) + "\n\n"


def _srl() -> str:
    body = "".join(
        _columns(text.split(), roles, ["-"] * len(text.split())) for text, roles in SRL_ROWS
    )
    return f"#begin document (a); part 000\n{body}#end document\n"


def _coref() -> str:
    documents = []
    for number, sentences in enumerate(COREF):
        body = ""
        for text, marks in sentences:
            cells = [_mark(mark) for mark in marks.split()]
            body += _columns(text.split(), {}, cells)
        documents.append(f"#begin document (d{number}); part 000\n{body}#end document\n")
    return "".join(documents)


def _mark(mark: str) -> str:
    """(1 opens, 1 closes: written short above, with its bracket here."""
    return f"{mark})" if mark.isdigit() else mark


def _qa() -> str:
    paragraphs = []
    for p, (context, questions) in enumerate(QA):
        qas = [
            {
                "id": f"{p}-{q}",
                "question": question,
                "answers": [{"text": answer, "answer_start": context.index(answer)}],
            }
            for q, (question, answer) in enumerate(questions)
        ]
        paragraphs.append({"context": context, "qas": qas})
    return json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]})


_TEXTS = {
    "tag": lambda: NER,
    "classify": _classify,
    "ner": lambda: NER,
    "sentiment": lambda: SENTIMENT,
    "nli": _nli,
    "srl": _srl,
    "qa": _qa,
    "coref": _coref,
}

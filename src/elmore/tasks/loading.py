"""The table of all tasks, and the one way to load a trained model of any of them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from elmore.base.messages import shown
from elmore.base.optional import require
from elmore.elmo import Elmo
from elmore.errors import FormatError
from elmore.tasks.folder import find_model, read_facts
from elmore.tasks.predictions import Predictor
from elmore.text.segmenter import Tokenizer

if TYPE_CHECKING:
    from elmore.tasks.task import Task

__all__ = ["PAPER_TASKS", "TASKS", "TaskEntry", "load", "task_class"]


class TaskEntry(NamedTuple):
    """Where the class of a task is, and what the task is for."""

    module: str
    class_name: str
    about: str


# The names of tasks in files are looked up here; nothing that a file names is imported.
TASKS: dict[str, TaskEntry] = {
    "tag": TaskEntry(
        "elmore.tasks.own.tag", "Tagger", "your own tags or spans (CoNLL, CSV, JSONL)"
    ),
    "classify": TaskEntry(
        "elmore.tasks.own.classify", "Classifier", "your own classes (CSV, JSONL)"
    ),
    "ner": TaskEntry(
        "elmore.tasks.paper.ner", "Ner", "names and what they are names of (CoNLL columns)"
    ),
    "sentiment": TaskEntry(
        "elmore.tasks.paper.sentiment", "Sentiment", "five-way sentiment (SST trees)"
    ),
    "nli": TaskEntry(
        "elmore.tasks.paper.nli", "Nli", "does one sentence follow from another (SNLI)"
    ),
    "srl": TaskEntry(
        "elmore.tasks.paper.srl", "Srl", "who did what to whom (CoNLL-2012 PropBank columns)"
    ),
    "qa": TaskEntry(
        "elmore.tasks.paper.qa", "Qa", "the answer to a question in a paragraph (SQuAD)"
    ),
    "coref": TaskEntry(
        "elmore.tasks.paper.coref", "Coref", "which words corefer (CoNLL-2012 clusters)"
    ),
}

# The models of the paper, which its studies compare.
PAPER_TASKS = tuple(name for name, entry in TASKS.items() if ".paper." in entry.module)


def task_class(name: str) -> type[Task[Any, Any]]:
    """The class of a task of `TASKS`; it needs torch."""
    require("torch", "tasks", f"the task {name}")
    entry = TASKS[name]
    found: type[Task[Any, Any]] = getattr(importlib.import_module(entry.module), entry.class_name)
    return found


def load(
    model: str | Path,
    *,
    light: bool = False,
    elmo: Elmo | None = None,
    threads: int | None = None,
    tokenizer: Tokenizer | None = None,
    **options: Any,
) -> Predictor[Any, Any]:
    """Load a trained model of any task; its folder says which.

    Args:
        model: the folder of a trained task or of its run; "pos", "chunk", "sentiment" or
            "sentiment-5", which ship with elmore; or `owner/name` on the Hugging Face hub.
        light: only to predict. Taggers and classifiers then need no torch; all others, and those
            that read characters or were trained without ELMo, are loaded in full.
        elmo: the biLM, if the folder has none inside and it is not the included English one.
        threads: processors to use; all by default.
        tokenizer: how raw text is split, as in `Elmo.load`.
        options: of a full model, as in `Task.load`: cache, device, progress; for tag and classify
            also text, label and separator.

    Returns:
        A `Predictor`. All have `predict` and `pipe`, which give the objects of the task; `lines`,
        which prints; and `items`, which turns the lines of a text file into what those take. To
        label raw sentences: `model.lines(sentences, "text", colour=True)`; a text file:
        `model.lines(model.items(numbered_lines, name), "jsonl")`; a table, with its columns kept:
        `label_table(model, "data.csv", "csv")`. A full model is a `Task` and can `evaluate` too.

    Examples:
        >>> import elmore.tasks
        >>> tagger = elmore.tasks.load("pos", light=True)
        >>> print(next(tagger.lines(["Rome fell."], "conll")))
        Rome	PROPN	NNP
        fell	VERB	VBD
        .	PUNCT	.
        <BLANKLINE>
    """
    place = find_model(model)
    name = read_facts(place).task
    if name not in TASKS:
        raise FormatError(
            f"'{shown(model, 120)}' is a model for {shown(name, 30)!r}, which is not a task of "
            "elmore; upgrade elmore"
        )
    if light and name in ("tag", "classify"):
        from elmore.tasks.own.light import load_light  # only here: it imports the biLM's kernels

        found = load_light(place, str(model), elmo=elmo, threads=threads, tokenizer=tokenizer)
        if found is not None:
            return found
    task = task_class(name).load(place, elmo=elmo, threads=threads, **options)
    task.tokenizer = tokenizer
    return task

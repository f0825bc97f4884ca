"""Downstream tasks: taggers and classifiers for your own data, and the six models of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from elmore.base.optional import lazy_names

if TYPE_CHECKING:
    from elmore.report import Report as Report
    from elmore.tasks.data.columns import Predicate as Predicate
    from elmore.tasks.data.labelled import TagExample as TagExample
    from elmore.tasks.data.labelled import label_table as label_table
    from elmore.tasks.data.tags import Span as Span
    from elmore.tasks.folder import load as load
    from elmore.tasks.own.classify import Classifier as Classifier
    from elmore.tasks.own.classify import ClassifyExample as ClassifyExample
    from elmore.tasks.own.tag import Tagger as Tagger
    from elmore.tasks.paper.coref import Coref as Coref
    from elmore.tasks.paper.coref import CorefExample as CorefExample
    from elmore.tasks.paper.ner import Ner as Ner
    from elmore.tasks.paper.nli import Nli as Nli
    from elmore.tasks.paper.qa import Qa as Qa
    from elmore.tasks.paper.qa import QaExample as QaExample
    from elmore.tasks.paper.qa import split_paragraph as split_paragraph
    from elmore.tasks.paper.sentiment import Sentiment as Sentiment
    from elmore.tasks.paper.sentiment import SentimentExample as SentimentExample
    from elmore.tasks.paper.srl import Srl as Srl
    from elmore.tasks.paper.srl import SrlExample as SrlExample
    from elmore.tasks.predictions import Classified as Classified
    from elmore.tasks.predictions import Predictor as Predictor
    from elmore.tasks.predictions import Tagged as Tagged
    from elmore.tasks.recipe import TaskRecipe as TaskRecipe


class TaskEntry(NamedTuple):
    """A task: the module in this package and the class there, and what it does, in one line."""

    module: str
    name: str
    summary: str


# The names of tasks in files are looked up here; nothing that a file names is imported.
TASKS = {
    "tag": TaskEntry("own.tag", "Tagger", "your own tags or spans (CoNLL, CSV, JSONL)"),
    "classify": TaskEntry("own.classify", "Classifier", "your own classes (CSV, JSONL)"),
    "ner": TaskEntry("paper.ner", "Ner", "names and what they are names of (CoNLL columns)"),
    "sentiment": TaskEntry("paper.sentiment", "Sentiment", "five-way sentiment (SST trees)"),
    "nli": TaskEntry("paper.nli", "Nli", "does one sentence follow from another (SNLI)"),
    "srl": TaskEntry("paper.srl", "Srl", "who did what to whom (CoNLL-2012 PropBank columns)"),
    "qa": TaskEntry("paper.qa", "Qa", "the answer to a question in a paragraph (SQuAD)"),
    "coref": TaskEntry("paper.coref", "Coref", "which words corefer (CoNLL-2012 clusters)"),
}
# Those for data of any kind, whose columns have names, and the paper's, which its studies compare.
OWN_TASKS = tuple(name for name, task in TASKS.items() if task.module.startswith("own."))
PAPER_TASKS = tuple(name for name in TASKS if name not in OWN_TASKS)

_NAMES = {
    "data.columns": ("Predicate",),
    "data.labelled": ("TagExample", "label_table"),
    "data.tags": ("Span",),
    "folder": ("load",),
    "own.classify": ("ClassifyExample",),
    "paper.coref": ("CorefExample",),
    "paper.qa": ("QaExample", "split_paragraph"),
    "paper.sentiment": ("SentimentExample",),
    "paper.srl": ("SrlExample",),
    "predictions": ("Classified", "Predictor", "Tagged"),
    "recipe": ("TaskRecipe",),
}
_PLACES = {name: f"elmore.tasks.{module}" for module, names in _NAMES.items() for name in names}
_PLACES |= {task.name: f"elmore.tasks.{task.module}" for task in TASKS.values()}
_PLACES["Report"] = "elmore.report"
__all__ = sorted([*_PLACES, "TASKS"])
__getattr__, __dir__ = lazy_names(__name__, _PLACES, extra="tasks")

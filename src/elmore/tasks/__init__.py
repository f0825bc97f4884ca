"""Downstream tasks: taggers and classifiers for your own data, and the six models of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmore.base.optional import lazy_names

if TYPE_CHECKING:
    from elmore.report import Report
    from elmore.tasks.data.columns import Predicate
    from elmore.tasks.data.labelled import TagExample, label_table
    from elmore.tasks.data.tags import Span
    from elmore.tasks.folder import TASKS, load
    from elmore.tasks.own.classify import Classifier, ClassifyExample
    from elmore.tasks.own.tag import Tagger
    from elmore.tasks.paper.coref import Coref, CorefExample
    from elmore.tasks.paper.ner import Ner
    from elmore.tasks.paper.nli import Nli, NliExample
    from elmore.tasks.paper.qa import Qa, QaExample, split_paragraph
    from elmore.tasks.paper.sentiment import Sentiment, SentimentExample
    from elmore.tasks.paper.srl import Srl, SrlExample
    from elmore.tasks.predictions import Classified, Predictor, Tagged
    from elmore.tasks.recipe import TaskRecipe

__all__ = [
    "TASKS",
    "Classified",
    "Classifier",
    "ClassifyExample",
    "Coref",
    "CorefExample",
    "Ner",
    "Nli",
    "NliExample",
    "Predicate",
    "Predictor",
    "Qa",
    "QaExample",
    "Report",
    "Sentiment",
    "SentimentExample",
    "Span",
    "Srl",
    "SrlExample",
    "TagExample",
    "Tagged",
    "Tagger",
    "TaskRecipe",
    "label_table",
    "load",
    "split_paragraph",
]

_NAMES = {
    "data.columns": ("Predicate",),
    "data.labelled": ("TagExample", "label_table"),
    "data.tags": ("Span",),
    "folder": ("TASKS", "load"),
    "own.classify": ("Classifier", "ClassifyExample"),
    "own.tag": ("Tagger",),
    "paper.coref": ("Coref", "CorefExample"),
    "paper.ner": ("Ner",),
    "paper.nli": ("Nli", "NliExample"),
    "paper.qa": ("Qa", "QaExample", "split_paragraph"),
    "paper.sentiment": ("Sentiment", "SentimentExample"),
    "paper.srl": ("Srl", "SrlExample"),
    "predictions": ("Classified", "Predictor", "Tagged"),
    "recipe": ("TaskRecipe",),
}
_PLACES = {name: f"elmore.tasks.{module}" for module, names in _NAMES.items() for name in names}
__getattr__, __dir__ = lazy_names(__name__, {"Report": "elmore.report", **_PLACES}, extra="tasks")

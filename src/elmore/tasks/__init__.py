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
    "TASKS": "elmore.tasks.folder",
    "Classified": "elmore.tasks.predictions",
    "Classifier": "elmore.tasks.own.classify",
    "ClassifyExample": "elmore.tasks.own.classify",
    "Coref": "elmore.tasks.paper.coref",
    "CorefExample": "elmore.tasks.paper.coref",
    "Ner": "elmore.tasks.paper.ner",
    "Nli": "elmore.tasks.paper.nli",
    "NliExample": "elmore.tasks.paper.nli",
    "Predicate": "elmore.tasks.data.columns",
    "Predictor": "elmore.tasks.predictions",
    "Qa": "elmore.tasks.paper.qa",
    "QaExample": "elmore.tasks.paper.qa",
    "Report": "elmore.report",
    "Sentiment": "elmore.tasks.paper.sentiment",
    "SentimentExample": "elmore.tasks.paper.sentiment",
    "Span": "elmore.tasks.data.tags",
    "Srl": "elmore.tasks.paper.srl",
    "SrlExample": "elmore.tasks.paper.srl",
    "TagExample": "elmore.tasks.data.labelled",
    "Tagged": "elmore.tasks.predictions",
    "Tagger": "elmore.tasks.own.tag",
    "TaskRecipe": "elmore.tasks.recipe",
    "label_table": "elmore.tasks.data.labelled",
    "load": "elmore.tasks.folder",
    "split_paragraph": "elmore.tasks.paper.qa",
}
__getattr__, __dir__ = lazy_names(__name__, _NAMES, extra="tasks")

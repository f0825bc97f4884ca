"""Downstream tasks: taggers and classifiers for your own data, and the six models of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmore.base.optional import lazy_names

if TYPE_CHECKING:
    from elmore.report import Report as Report
    from elmore.tasks.data.columns import Predicate as Predicate
    from elmore.tasks.data.labelled import TagExample as TagExample
    from elmore.tasks.data.labelled import label_table as label_table
    from elmore.tasks.data.tags import Span as Span
    from elmore.tasks.folder import TASKS as TASKS
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

_NAMES = {
    "data.columns": ("Predicate",),
    "data.labelled": ("TagExample", "label_table"),
    "data.tags": ("Span",),
    "folder": ("TASKS", "load"),
    "own.classify": ("Classifier", "ClassifyExample"),
    "own.tag": ("Tagger",),
    "paper.coref": ("Coref", "CorefExample"),
    "paper.ner": ("Ner",),
    "paper.nli": ("Nli",),
    "paper.qa": ("Qa", "QaExample", "split_paragraph"),
    "paper.sentiment": ("Sentiment", "SentimentExample"),
    "paper.srl": ("Srl", "SrlExample"),
    "predictions": ("Classified", "Predictor", "Tagged"),
    "recipe": ("TaskRecipe",),
}
_PLACES = {name: f"elmore.tasks.{module}" for module, names in _NAMES.items() for name in names}
_PLACES["Report"] = "elmore.report"
__all__ = sorted(_PLACES)
__getattr__, __dir__ = lazy_names(__name__, _PLACES, extra="tasks")

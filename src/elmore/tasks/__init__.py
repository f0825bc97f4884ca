"""Downstream tasks: taggers and classifiers for your own data, and the six models of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmore._imports import lazy_names

if TYPE_CHECKING:
    from elmore.report import Report
    from elmore.tasks.classify import Classifier, ClassifyExample
    from elmore.tasks.columns import Predicate
    from elmore.tasks.coref import Coref, CorefExample
    from elmore.tasks.decoding import Classified, Tagged
    from elmore.tasks.labelled import TagExample
    from elmore.tasks.ner import Ner, NerExample
    from elmore.tasks.nli import Nli, NliExample
    from elmore.tasks.qa import Qa, QaExample, split_paragraph
    from elmore.tasks.recipe import TaskRecipe
    from elmore.tasks.sentiment import Sentiment, SentimentExample
    from elmore.tasks.srl import Srl, SrlExample
    from elmore.tasks.tag import Tagger
    from elmore.tasks.tags import Span

__all__ = [
    "Classified",
    "Classifier",
    "ClassifyExample",
    "Coref",
    "CorefExample",
    "Ner",
    "NerExample",
    "Nli",
    "NliExample",
    "Predicate",
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
    "split_paragraph",
]

_NAMES = {
    "Classified": "elmore.tasks.decoding",
    "Classifier": "elmore.tasks.classify",
    "ClassifyExample": "elmore.tasks.classify",
    "Coref": "elmore.tasks.coref",
    "CorefExample": "elmore.tasks.coref",
    "Ner": "elmore.tasks.ner",
    "NerExample": "elmore.tasks.ner",
    "Nli": "elmore.tasks.nli",
    "NliExample": "elmore.tasks.nli",
    "Predicate": "elmore.tasks.columns",
    "Qa": "elmore.tasks.qa",
    "QaExample": "elmore.tasks.qa",
    "Report": "elmore.report",
    "Sentiment": "elmore.tasks.sentiment",
    "SentimentExample": "elmore.tasks.sentiment",
    "Span": "elmore.tasks.tags",
    "Srl": "elmore.tasks.srl",
    "SrlExample": "elmore.tasks.srl",
    "TagExample": "elmore.tasks.labelled",
    "Tagged": "elmore.tasks.decoding",
    "Tagger": "elmore.tasks.tag",
    "TaskRecipe": "elmore.tasks.recipe",
    "split_paragraph": "elmore.tasks.qa",
}
__getattr__, __dir__ = lazy_names(__name__, _NAMES)

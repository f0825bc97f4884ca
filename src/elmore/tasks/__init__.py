"""Downstream tasks: the six models of the paper, with and without ELMo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmore._lazy import lazy_names

if TYPE_CHECKING:
    from elmore.tasks.coref import Coref
    from elmore.tasks.ner import Ner
    from elmore.tasks.nli import Nli
    from elmore.tasks.qa import Qa
    from elmore.tasks.recipe import TaskRecipe
    from elmore.tasks.sentiment import Sentiment
    from elmore.tasks.srl import Srl
    from elmore.tasks.task import Report

__all__ = ["Coref", "Ner", "Nli", "Qa", "Report", "Sentiment", "Srl", "TaskRecipe"]

_NAMES = {
    "Coref": "elmore.tasks.coref",
    "Ner": "elmore.tasks.ner",
    "Nli": "elmore.tasks.nli",
    "Qa": "elmore.tasks.qa",
    "Report": "elmore.tasks.task",
    "Sentiment": "elmore.tasks.sentiment",
    "Srl": "elmore.tasks.srl",
    "TaskRecipe": "elmore.tasks.recipe",
}
__getattr__, __dir__ = lazy_names(__name__, _NAMES)

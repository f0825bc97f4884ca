"""Senses: find, group, name and compare the uses of words."""

from __future__ import annotations

from elmore.senses.change import Changes, compare
from elmore.senses.explore import Exploration
from elmore.senses.find import Concordance
from elmore.senses.groups import Sense, WordSenses
from elmore.senses.index import Index, Use
from elmore.senses.indexing import build_index
from elmore.senses.vectors import SenseSpace, SenseVectors, marked_place, sense_vectors

__all__ = [
    "Changes",
    "Concordance",
    "Exploration",
    "Index",
    "Sense",
    "SenseSpace",
    "SenseVectors",
    "Use",
    "WordSenses",
    "build_index",
    "compare",
    "marked_place",
    "sense_vectors",
]

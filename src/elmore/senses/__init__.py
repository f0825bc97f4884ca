"""Senses: find, group, name and compare the uses of words."""

from __future__ import annotations

from elmore.language_model.explore import Exploration
from elmore.language_model.sense_vectors import (
    LayerSpace,
    SenseSpace,
    SenseVectors,
    SubstituteSpace,
    marked_place,
    sense_vectors,
)
from elmore.senses.change import Changes, compare
from elmore.senses.find import Concordance
from elmore.senses.groups import Sense, WordSenses
from elmore.senses.index import Index, Use
from elmore.senses.indexing import build_index

__all__ = [
    "Changes",
    "Concordance",
    "Exploration",
    "Index",
    "LayerSpace",
    "Sense",
    "SenseSpace",
    "SenseVectors",
    "SubstituteSpace",
    "Use",
    "WordSenses",
    "build_index",
    "compare",
    "marked_place",
    "sense_vectors",
]

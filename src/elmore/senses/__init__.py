"""Senses: find, group, name and compare the uses of words."""

from __future__ import annotations

from elmore.language_model.sense_vectors import SenseVectors, marked_place, sense_vectors
from elmore.senses.change import Changes, compare
from elmore.senses.counting import collocates, frequencies
from elmore.senses.find import Concordance
from elmore.senses.groups import Sense, WordSenses
from elmore.senses.index import Index, Use
from elmore.senses.indexing import build_index
from elmore.senses.induction import InducedSenses, induce

__all__ = [
    "Changes",
    "Concordance",
    "Index",
    "InducedSenses",
    "Sense",
    "SenseVectors",
    "Use",
    "WordSenses",
    "build_index",
    "collocates",
    "compare",
    "frequencies",
    "induce",
    "marked_place",
    "sense_vectors",
]

"""Senses: find, group, name and compare the uses of words."""

from elmore.senses.find import Concordance
from elmore.senses.index import Index, Use
from elmore.senses.indexing import build_index
from elmore.senses.vectors import Place, SenseSpace, SenseVectors, marked_place, sense_vectors

__all__ = [
    "Concordance",
    "Index",
    "Place",
    "SenseSpace",
    "SenseVectors",
    "Use",
    "build_index",
    "marked_place",
    "sense_vectors",
]

"""Senses: find, group, name and compare the uses of words."""

from __future__ import annotations

from elmore.senses.vectors import Place, SenseSpace, SenseVectors, marked_place, sense_vectors

__all__ = ["Place", "SenseSpace", "SenseVectors", "marked_place", "sense_vectors"]

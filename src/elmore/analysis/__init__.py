"""The paper's analyses: what the layers of a biLM know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmore.base.optional import lazy_names

if TYPE_CHECKING:
    from elmore.analysis.ablations import LayerWeighting, Placement, SampleSize
    from elmore.analysis.blimp import Blimp
    from elmore.analysis.lexical_substitution import LexicalSubstitution
    from elmore.analysis.mixes import Mixes
    from elmore.analysis.neighbors import Neighbors
    from elmore.analysis.pos import Pos
    from elmore.analysis.wsd import Wsd

__all__ = [
    "Blimp",
    "LayerWeighting",
    "LexicalSubstitution",
    "Mixes",
    "Neighbors",
    "Placement",
    "Pos",
    "SampleSize",
    "Wsd",
]

_NAMES = {
    "Blimp": "elmore.analysis.blimp",
    "LexicalSubstitution": "elmore.analysis.lexical_substitution",
    "LayerWeighting": "elmore.analysis.ablations",
    "Mixes": "elmore.analysis.mixes",
    "Neighbors": "elmore.analysis.neighbors",
    "Placement": "elmore.analysis.ablations",
    "Pos": "elmore.analysis.pos",
    "SampleSize": "elmore.analysis.ablations",
    "Wsd": "elmore.analysis.wsd",
}
__getattr__, __dir__ = lazy_names(__name__, _NAMES)

"""The paper's analyses: what the layers of a biLM have learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmore.base.optional import lazy_names

if TYPE_CHECKING:
    from elmore.analysis.blimp import Blimp
    from elmore.analysis.lexical_substitution import LexicalSubstitution
    from elmore.analysis.neighbors import Neighbors
    from elmore.analysis.pos import Pos
    from elmore.analysis.studies import LayerWeighting, Mixes, Placement, SampleSize
    from elmore.analysis.usage_graph import UsageGraph
    from elmore.analysis.wsd import Wsd
    from elmore.analysis.wsi import SenseInduction

__all__ = [
    "Blimp",
    "LayerWeighting",
    "LexicalSubstitution",
    "Mixes",
    "Neighbors",
    "Placement",
    "Pos",
    "SampleSize",
    "SenseInduction",
    "UsageGraph",
    "Wsd",
]

_NAMES = {
    "Blimp": "elmore.analysis.blimp",
    "LexicalSubstitution": "elmore.analysis.lexical_substitution",
    "LayerWeighting": "elmore.analysis.studies",
    "Mixes": "elmore.analysis.studies",
    "Neighbors": "elmore.analysis.neighbors",
    "Placement": "elmore.analysis.studies",
    "Pos": "elmore.analysis.pos",
    "SampleSize": "elmore.analysis.studies",
    "SenseInduction": "elmore.analysis.wsi",
    "UsageGraph": "elmore.analysis.usage_graph",
    "Wsd": "elmore.analysis.wsd",
}
__getattr__, __dir__ = lazy_names(__name__, _NAMES)

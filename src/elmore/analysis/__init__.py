"""The paper's analyses: what the layers of a biLM have learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmore.base.optional import lazy_names

if TYPE_CHECKING:
    from elmore.analysis.blimp import Blimp as Blimp
    from elmore.analysis.lexical_substitution import LexicalSubstitution as LexicalSubstitution
    from elmore.analysis.neighbors import Neighbors as Neighbors
    from elmore.analysis.pos import Pos as Pos
    from elmore.analysis.studies import LayerWeighting as LayerWeighting
    from elmore.analysis.studies import Mixes as Mixes
    from elmore.analysis.studies import Placement as Placement
    from elmore.analysis.studies import SampleSize as SampleSize
    from elmore.analysis.usage_graph import UsageGraph as UsageGraph
    from elmore.analysis.wsd import Wsd as Wsd
    from elmore.analysis.wsi import SenseInduction as SenseInduction

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
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)

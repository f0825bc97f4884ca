"""The paper's analyses: what the layers of a biLM know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmore._lazy import lazy_names

if TYPE_CHECKING:
    from elmore.analysis.neighbors import Neighbors
    from elmore.analysis.pos import Pos
    from elmore.analysis.wsd import Wsd

__all__ = ["Neighbors", "Pos", "Wsd"]

_NAMES = {
    "Neighbors": "elmore.analysis.neighbors",
    "Pos": "elmore.analysis.pos",
    "Wsd": "elmore.analysis.wsd",
}
__getattr__, __dir__ = lazy_names(__name__, _NAMES)

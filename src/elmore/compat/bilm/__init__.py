"""bilm-tf's calls over elmore's parts: arrays instead of graphs and sessions.

`from bilm import Batcher, BidirectionalLanguageModel, weight_layers` becomes
`from elmore.compat.bilm import ...`; where bilm-tf gave an operation to run in a session, these
give its value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmore.base.optional import lazy_names
from elmore.compat.old_paths import add_modules

if TYPE_CHECKING:
    from elmore.compat.bilm.data import (
        Batcher,
        TokenBatcher,
        UnicodeCharsVocabulary,
        Vocabulary,
        dump_bilm_embeddings,
        dump_token_embeddings,
    )
    from elmore.compat.bilm.model import BidirectionalLanguageModel, LayerWeights, weight_layers

__all__ = [
    "Batcher",
    "BidirectionalLanguageModel",
    "LayerWeights",
    "TokenBatcher",
    "UnicodeCharsVocabulary",
    "Vocabulary",
    "dump_bilm_embeddings",
    "dump_token_embeddings",
    "weight_layers",
]

_MODULES = {
    "data": (
        "Batcher TokenBatcher UnicodeCharsVocabulary Vocabulary dump_bilm_embeddings "
        "dump_token_embeddings"
    ),
    "model": "BidirectionalLanguageModel LayerWeights weight_layers",
}
_NAMES = {
    name: f"elmore.compat.bilm.{module}"
    for module, names in _MODULES.items()
    for name in names.split()
}
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
add_modules(__name__, {"elmo": "weight_layers"}, _NAMES)

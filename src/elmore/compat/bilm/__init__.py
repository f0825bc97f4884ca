"""bilm-tf's calls over elmore's parts: arrays instead of graphs and sessions.

`from bilm import Batcher, BidirectionalLanguageModel, weight_layers` becomes
`from elmore.compat.bilm import ...`; where bilm-tf gave an operation to run in a session, these
give its value.
"""

from __future__ import annotations

from elmore.base.optional import lazy_names
from elmore.compat import add_modules
from elmore.compat.bilm.data import (
    Batcher,
    TokenBatcher,
    UnicodeCharsVocabulary,
    Vocabulary,
    dump_bilm_embeddings,
    dump_token_embeddings,
)

__all__ = [
    "Batcher",
    "TokenBatcher",
    "UnicodeCharsVocabulary",
    "Vocabulary",
    "dump_bilm_embeddings",
    "dump_token_embeddings",
]

_NAMES = dict.fromkeys(
    ("BidirectionalLanguageModel", "LayerWeights", "weight_layers"), "elmore.compat.bilm.model"
)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
add_modules(__name__, {"elmo": "weight_layers"}, _NAMES)

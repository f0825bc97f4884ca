"""bilm-tf's calls over elmore's parts: arrays instead of graphs and sessions.

`from bilm import Batcher, BidirectionalLanguageModel, weight_layers` becomes
`from elmore.compat.bilm import ...`; where bilm-tf gave an operation to run in a session, these
give its value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmore._imports import lazy_names

if TYPE_CHECKING:
    from elmore.compat.bilm.data import (
        Batcher,
        TokenBatcher,
        UnicodeCharsVocabulary,
        Vocabulary,
    )
    from elmore.compat.bilm.datasets import BidirectionalLMDataset, LMDataset
    from elmore.compat.bilm.dumps import dump_bilm_embeddings, dump_token_embeddings
    from elmore.compat.bilm.elmo import LayerWeights, weight_layers
    from elmore.compat.bilm.model import BidirectionalLanguageModel

__all__ = [
    "Batcher",
    "BidirectionalLMDataset",
    "BidirectionalLanguageModel",
    "LMDataset",
    "LayerWeights",
    "TokenBatcher",
    "UnicodeCharsVocabulary",
    "Vocabulary",
    "dump_bilm_embeddings",
    "dump_token_embeddings",
    "weight_layers",
]

_HERE = "elmore.compat.bilm"
_NAMES = {
    "Batcher": f"{_HERE}.data",
    "BidirectionalLMDataset": f"{_HERE}.datasets",
    "BidirectionalLanguageModel": f"{_HERE}.model",
    "LMDataset": f"{_HERE}.datasets",
    "LayerWeights": f"{_HERE}.elmo",
    "TokenBatcher": f"{_HERE}.data",
    "UnicodeCharsVocabulary": f"{_HERE}.data",
    "Vocabulary": f"{_HERE}.data",
    "dump_bilm_embeddings": f"{_HERE}.dumps",
    "dump_token_embeddings": f"{_HERE}.dumps",
    "weight_layers": f"{_HERE}.elmo",
}
__getattr__, __dir__ = lazy_names(__name__, _NAMES)

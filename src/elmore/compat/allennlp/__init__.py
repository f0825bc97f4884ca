"""AllenNLP's ELMo over elmore's parts: change the import, keep the code.

`from allennlp.modules.elmo import Elmo, batch_to_ids` becomes
`from elmore.compat.allennlp import Elmo, batch_to_ids`; the same for `ElmoEmbedder` (removed from
AllenNLP 1.0 on) and the token embedders. The old command is
`python -m elmore.compat.allennlp elmo`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmore._imports import lazy_names

if TYPE_CHECKING:
    from elmore.compat.allennlp.bilm import _ElmoBiLm
    from elmore.compat.allennlp.elmo import Elmo
    from elmore.compat.allennlp.embedder import ElmoEmbedder
    from elmore.compat.allennlp.indexing import (
        ELMoCharacterMapper,
        ELMoTokenCharactersIndexer,
        batch_to_ids,
    )
    from elmore.compat.allennlp.lstm import ElmoLstm
    from elmore.compat.allennlp.scalar_mix import ScalarMix
    from elmore.compat.allennlp.token_embedders import (
        ElmoTokenEmbedder,
        ElmoTokenEmbedderMultiLang,
    )
    from elmore.compat.allennlp.tokens import _ElmoCharacterEncoder
    from elmore.errors import ConfigError as ConfigurationError

__all__ = [
    "ConfigurationError",
    "ELMoCharacterMapper",
    "ELMoTokenCharactersIndexer",
    "Elmo",
    "ElmoEmbedder",
    "ElmoLstm",
    "ElmoTokenEmbedder",
    "ElmoTokenEmbedderMultiLang",
    "ScalarMix",
    "_ElmoBiLm",
    "_ElmoCharacterEncoder",
    "batch_to_ids",
]

_HERE = "elmore.compat.allennlp"
_NAMES = {
    "ConfigurationError": f"{_HERE}.files",
    "ELMoCharacterMapper": f"{_HERE}.indexing",
    "ELMoTokenCharactersIndexer": f"{_HERE}.indexing",
    "Elmo": f"{_HERE}.elmo",
    "ElmoEmbedder": f"{_HERE}.embedder",
    "ElmoLstm": f"{_HERE}.lstm",
    "ElmoTokenEmbedder": f"{_HERE}.token_embedders",
    "ElmoTokenEmbedderMultiLang": f"{_HERE}.token_embedders",
    "ScalarMix": f"{_HERE}.scalar_mix",
    "_ElmoBiLm": f"{_HERE}.bilm",
    "_ElmoCharacterEncoder": f"{_HERE}.tokens",
    "batch_to_ids": f"{_HERE}.indexing",
}
__getattr__, __dir__ = lazy_names(__name__, _NAMES)

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
    from elmore.compat.allennlp.bilm_modules import ElmoLstm, _ElmoBiLm
    from elmore.compat.allennlp.character_encoder import _ElmoCharacterEncoder
    from elmore.compat.allennlp.elmo_modules import (
        Elmo,
        ElmoTokenEmbedder,
        ElmoTokenEmbedderMultiLang,
        ScalarMix,
    )
    from elmore.compat.allennlp.embedder import ElmoEmbedder
    from elmore.compat.allennlp.indexing import (
        ELMoCharacterMapper,
        ELMoTokenCharactersIndexer,
        batch_to_ids,
    )
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

_MODULES = {
    "bilm_modules": "ElmoLstm _ElmoBiLm",
    "character_encoder": "_ElmoCharacterEncoder",
    "elmo_modules": "Elmo ElmoTokenEmbedder ElmoTokenEmbedderMultiLang ScalarMix",
    "embedder": "ElmoEmbedder",
    "indexing": ("ConfigurationError ELMoCharacterMapper ELMoTokenCharactersIndexer batch_to_ids"),
}
_NAMES = {
    name: f"elmore.compat.allennlp.{module}"
    for module, names in _MODULES.items()
    for name in names.split()
}
__getattr__, __dir__ = lazy_names(__name__, _NAMES)

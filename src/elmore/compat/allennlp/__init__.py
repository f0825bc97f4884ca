"""AllenNLP's ELMo over elmore's parts: change the import, keep the code.

`from allennlp.modules.elmo import Elmo, batch_to_ids` becomes
`from elmore.compat.allennlp.modules.elmo import Elmo, batch_to_ids`; all names are here as well.
The old command is `python -m elmore.compat.allennlp elmo`.
"""

from __future__ import annotations

from elmore.base.optional import lazy_names
from elmore.compat import add_modules

_MODULES = {
    "bilm_modules": "ElmoLstm _ElmoBiLm _ElmoCharacterEncoder",
    "elmo_modules": "Elmo ElmoTokenEmbedder ElmoTokenEmbedderMultiLang ScalarMix",
    "embedder": (
        "ConfigurationError DEFAULT_OPTIONS_FILE DEFAULT_WEIGHT_FILE ELMoCharacterMapper "
        "ELMoTokenCharactersIndexer ElmoEmbedder batch_to_ids cached_path"
    ),
}
_NAMES = {
    name: f"elmore.compat.allennlp.{module}"
    for module, names in _MODULES.items()
    for name in names.split()
}
__getattr__, __dir__ = lazy_names(__name__, _NAMES)

_EMBEDDERS = "ElmoTokenEmbedder ElmoTokenEmbedderMultiLang"
_INDEXERS = "ELMoCharacterMapper ELMoTokenCharactersIndexer"
# Both layouts: that of 0.x, and that of 1.0 and later, where it differs.
add_modules(
    __name__,
    {
        "commands": "",
        "commands.elmo": "DEFAULT_OPTIONS_FILE DEFAULT_WEIGHT_FILE ElmoEmbedder batch_to_ids",
        "common": "",
        "common.checks": "ConfigurationError",
        "common.file_utils": "cached_path",
        "data": "",
        "data.token_indexers": "ELMoTokenCharactersIndexer",
        "data.token_indexers.elmo_indexer": _INDEXERS,
        "modules": "Elmo ScalarMix",
        "modules.elmo": "Elmo ScalarMix _ElmoBiLm _ElmoCharacterEncoder batch_to_ids "
        "ELMoTokenCharactersIndexer ELMoCharacterMapper ElmoLstm ConfigurationError cached_path",
        "modules.elmo_lstm": "ElmoLstm",
        "modules.scalar_mix": "ScalarMix",
        "modules.token_embedders": _EMBEDDERS,
        "modules.token_embedders.elmo_token_embedder": "ElmoTokenEmbedder",
        "modules.token_embedders.elmo_token_embedder_multilang": "ElmoTokenEmbedderMultiLang",
    },
    _NAMES,
)

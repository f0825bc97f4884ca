"""elmore: a maintained, fast ELMo.

from elmore import Elmo
elmo = Elmo.load("my-model")
vectors = elmo.embed(["Stocks fell .", "She fell ."])
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from elmore._version import __version__ as __version__
from elmore.base.optional import lazy_names
from elmore.errors import ElmoreError as ElmoreError

if TYPE_CHECKING:
    from elmore import analysis as analysis
    from elmore import senses as senses
    from elmore import tasks as tasks
    from elmore.config import BiLmConfig as BiLmConfig
    from elmore.corpus.prepare import prepare as prepare
    from elmore.elmo import Elmo as Elmo
    from elmore.embedding.results import SentenceLayers as SentenceLayers
    from elmore.embedding.results import cosine as cosine
    from elmore.embedding.search import search as search
    from elmore.language_model.likely_words import substitutes as substitutes
    from elmore.language_model.perplexity import perplexity as perplexity
    from elmore.language_model.scores import score as score
    from elmore.nn.elmo_layer import ElmoLayer as ElmoLayer
    from elmore.nn.elmo_layer import ScalarMix as ScalarMix
    from elmore.tasks.own.light import classifier as classifier
    from elmore.tasks.own.light import tagger as tagger
    from elmore.training.bilm.fine_tune import fine_tune as fine_tune
    from elmore.training.bilm.pretrain import pretrain as pretrain
    from elmore.training.bilm.recipe import Recipe as Recipe
    from elmore.training.run import Run as Run

# torch is heavy: nothing of it is loaded before a name that needs it is used.
_NAMES = {
    "BiLmConfig": "elmore.config",
    "Elmo": "elmore.elmo",
    "ElmoLayer": "elmore.nn.elmo_layer",
    "Recipe": "elmore.training.bilm.recipe",
    "Run": "elmore.training.run",
    "ScalarMix": "elmore.nn.elmo_layer",
    "SentenceLayers": "elmore.embedding.results",
    "analysis": "elmore.analysis",
    "classifier": "elmore.tasks.own.light",
    "cosine": "elmore.embedding.results",
    "fine_tune": "elmore.training.bilm.fine_tune",
    "perplexity": "elmore.language_model.perplexity",
    "prepare": "elmore.corpus.prepare",
    "pretrain": "elmore.training.bilm.pretrain",
    "score": "elmore.language_model.scores",
    "search": "elmore.embedding.search",
    "senses": "elmore.senses",
    "substitutes": "elmore.language_model.likely_words",
    "tagger": "elmore.tasks.own.light",
    "tasks": "elmore.tasks",
}
__all__ = sorted(["ElmoreError", "__version__", *_NAMES])
__getattr__, __dir__ = lazy_names(__name__, _NAMES)

logging.getLogger(__name__).addHandler(logging.NullHandler())

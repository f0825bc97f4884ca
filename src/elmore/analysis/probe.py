"""What the probes of single layers share: which layers, and a control with random weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import SILENT, Progress
from elmore.compute.initial_weights import initial_weights
from elmore.elmo import Elmo
from elmore.embedding.layer_cache import LayerCache, cache_folder
from elmore.embedding.results import layer_weights
from elmore.options import LayerChoice
from elmore.text.word_vectors import WordVectors, read_word_vectors
from elmore.training.seeds import numpy_generator

# Layers to measure, with their names.
Views = list[tuple[str, LayerChoice]]


@dataclass(eq=False)
class LayerProbe:
    """What a probe of frozen layers takes: the model, the layers, and two controls.

    Args:
        elmo: the model.
        layers: "all" (each layer and their mean), or a choice as in `Elmo.embed`.
        vectors: a file of static word vectors as a control.
        random: measure a biLM with random weights too.
        limit: learn from so many sentences of the training data only.
        seed: of the random weights.
        cache: a folder that keeps the layers for next time.
        progress: counts sentences.
    """

    elmo: Elmo
    _: KW_ONLY
    layers: LayerChoice | str = "all"
    vectors: str | Path | None = None
    random: bool = True
    limit: int | None = None
    seed: int = 0
    cache: str | Path | None = None
    progress: Progress = SILENT

    def __post_init__(self) -> None:
        self.views = layer_views(self.layers, self.elmo.n_layers)

    def static_vectors(self) -> WordVectors | None:
        """The static word vectors to compare with, if there are any."""
        return None if self.vectors is None else read_word_vectors(Path(self.vectors))

    def caches(self) -> Iterator[tuple[str, LayerCache]]:
        """The layers of the model, then of a random one, each with the prefix of its rows."""
        with cache_folder(self.cache) as folder:
            yield "", LayerCache(self.elmo, folder)
            if self.random:
                control = random_model(self.elmo, self.seed)
                yield "random, ", LayerCache(control, folder)


def layer_views(layers: LayerChoice | str, n_layers: int) -> Views:
    """Name the layers that a probe measures; "all" means each, and their mean."""
    if isinstance(layers, str) and layers == "all":
        return [*((f"layer {k}", k) for k in range(n_layers)), ("mean", "mean")]
    layer_weights(layers, n_layers)  # type: ignore[arg-type]  # it refuses other texts
    if layers == "top":
        layers = n_layers - 1
    if isinstance(layers, int):
        return [(f"layer {layers}", layers)]
    name = layers if isinstance(layers, str) else ",".join(f"{weight:g}" for weight in layers)
    return [(name, layers)]  # type: ignore[list-item]  # checked above


def random_model(elmo: Elmo, seed: int = 0) -> Elmo:
    """A model of the same shape and with the same ids that never saw text.

    It shows what a probe would find anyway: from spelling, position and word order alone.
    """
    weights = initial_weights(elmo.config, numpy_generator(seed, "random twin"))
    checkpoint = dataclasses.replace(
        elmo.checkpoint.with_weights(weights),
        softmax=None,
        mixes=(),
        origin=f"{elmo.checkpoint.origin} (random weights)",
    )
    engine = elmo.engine
    return Elmo(
        checkpoint,
        device=engine.device,
        precision=elmo.precision,
        threads=engine.workers.threads,
        start=engine.compute.start,
        tokenizer=engine.compute.tokenizer,
    )


def percent(right: NDArray[np.bool_]) -> float | None:
    """The share of right answers; None if nothing was asked."""
    return round(100 * float(right.mean()), 3) if len(right) else None

"""What a probe would find anyway: a biLM of the same shape that never saw text."""

from __future__ import annotations

import dataclasses

from elmore.embedding.elmo import Elmo
from elmore.initial_weights import initial_weights
from elmore.training.seeds import numpy_generator

__all__ = ["random_twin"]


def random_twin(elmo: Elmo, seed: int = 0) -> Elmo:
    """Make a model of the same shape and with the same ids, but with the weights of a start.

    Args:
        elmo: the model to copy the shape of.
        seed: what the weights are drawn with.
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
        start="zeros" if engine._start is None else "warm",
    )

"""What a probe would find anyway: a biLM of the same shape that never saw text."""

from __future__ import annotations

import dataclasses

from elmore.embedding.elmo import Elmo
from elmore.nn.bilm import BiLm
from elmore.nn.initial import initialise
from elmore.training.seeds import torch_generator

__all__ = ["random_twin"]


def random_twin(elmo: Elmo, seed: int = 0) -> Elmo:
    """Make a model of the same shape and with the same ids, but with the weights of a start.

    Args:
        elmo: the model to copy the shape of.
        seed: what the weights are drawn with.
    """
    bilm = BiLm(elmo.config)
    initialise(bilm, torch_generator(seed, "random twin"))
    weights = {name: w.detach().numpy() for name, w in bilm.named_parameters()}
    checkpoint = dataclasses.replace(
        elmo.checkpoint.with_weights(weights),
        softmax=None,
        mixes=(),
        origin=f"{elmo.checkpoint.origin} (random weights)",
    )
    engine = elmo.engine
    return Elmo(
        checkpoint,
        device=str(engine.device),
        precision=elmo.precision,
        threads=engine.workers.threads,
        start="zeros" if engine._start is None else "warm",
    )

"""ELMoForManyLangs' `Embedder` (elmoformanylangs 0.0.4) over elmore's parts.

It reproduces what the original does with its batches: state is carried from call to call, and the
`lstm` encoder sees the padding of shorter sentences. `Elmo.embed(tokenized=True)` does neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmore.compat import add_modules
from elmore.elmo import Elmo
from elmore.errors import ConfigError, FormatError
from elmore.text.batching import with_padding_as_words
from elmore.text.characters import DictionaryAlphabet

add_modules(__name__, {"elmo": "Embedder"}, {"Embedder": __name__})

Array = NDArray[np.float32]


class Embedder:
    """Vectors as ELMoForManyLangs gives them.

    One difference: the original runs batches in a random order, so that with more than
    `batch_size` sentences its results differ from run to run; here they run longest first.

    Args:
        model_dir: folder or zip of the model, or anything else that `Elmo.load` takes and that
            has a character dictionary or a word list of ELMoForManyLangs.
        batch_size: sentences in a batch.
    """

    def __init__(self, model_dir: str | Path, batch_size: int = 64) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size={batch_size} holds no sentence; use 1 or more")
        self.model_dir = model_dir
        self.batch_size = batch_size
        self.elmo = Elmo.load(model_dir)
        if self.elmo.engine.indexer.markers != DictionaryAlphabet.markers:
            raise FormatError(
                f"'{model_dir}' is not an ELMoForManyLangs model; use elmore.Elmo.load for it"
            )
        self._stream = self.elmo.stateful()

    def reset_states(self) -> None:
        """Forget all sentences read before, as `model.encoder.reset_states()` does."""
        self._stream.reset()

    def sents2elmo(self, sents: Sequence[Sequence[str]], output_layer: int = -1) -> list[Array]:
        """Embed tokenized sentences.

        Args:
            sents: tokens of each sentence.
            output_layer: -2 for all layers (layers, time, dim), -1 for their mean (time, dim),
                or the number of one layer. With an `lstm` encoder, which has one layer, -2 gives
                (time, dim); -1 and numbers are taken over the *tokens*, as the original does:
                their mean, or the vector of one token, (dim,).

        Returns:
            an array for each sentence, in the order of the input.
        """
        # A fixed order: the state that a batch leaves is where the next one starts.
        order = sorted(range(len(sents)), key=lambda k: -len(sents[k]))
        results: dict[int, Array] = {}
        for start in range(0, len(order), self.batch_size):
            members = order[start : start + self.batch_size]
            values = self._batch([list(sents[k]) for k in members])
            for k, value in zip(members, values, strict=True):
                results[k] = _choose(value, output_layer)
        return [results[k] for k in range(len(sents))]

    def _batch(self, sentences: list[list[str]]) -> list[Array]:
        if not self.elmo.config.lstm.mixed:
            return [layers.values for layers in self._stream.layers(sentences, tokenized=True)]
        engine = self.elmo.engine
        # The original's `lstm` encoder runs over the padding as if it were words, backward as well.
        batch = with_padding_as_words(engine.indexer.batch(sentences), engine.indexer)
        layers, _ = engine.run(batch)
        return [layers[0, row, 1 : len(s) + 1].copy() for row, s in enumerate(sentences)]


def _choose(values: Array, output_layer: int) -> Array:
    """Pick along the first axis, whatever it is: so does the original."""
    if output_layer == -2:
        return values
    if output_layer == -1:
        # No tokens have no mean: the original warns and gives NaN.
        return values.mean(axis=0) if len(values) else np.zeros(values.shape[1:], np.float32)
    if not 0 <= output_layer < len(values):
        raise ConfigError(
            f"output_layer={output_layer} but there are {len(values)}; use -1, -2 or "
            f"0..{len(values) - 1}"
        )
    return np.asarray(values[output_layer])

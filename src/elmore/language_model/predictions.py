"""The biLM as a language model in both directions, which it was trained to be.

A sentence is `<S> w1 … wn </S>`. Forward, the model reads it from `<S>` and predicts w1 … wn
`</S>`; backward, from `</S>`, it predicts wn … w1 `<S>`. That is n + 1 predictions each, every
sentence on its own. Words that the vocabulary lacks count as `<UNK>` where they are predicted, but
not where they are read. All probabilities are those of the full softmax; logarithms are natural.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.compute.workers import one_blas_thread
from elmore.embedding.inputs import sentence_from_tokens
from elmore.errors import ConfigError, FormatError
from elmore.formats.checkpoint import Checkpoint
from elmore.text.tokenizer import Sentence

if TYPE_CHECKING:
    from elmore.elmo import Elmo

Array = NDArray[np.float32]
Logs = NDArray[np.float64]
Ids = NDArray[np.int64]


class LanguageModel:
    """A model with its softmax: sentences in, log probabilities out."""

    def __init__(self, elmo: Elmo) -> None:
        if not isinstance(getattr(elmo, "checkpoint", None), Checkpoint):
            raise ConfigError(
                f"elmo={shown(repr(elmo), 60)} is not a loaded model; pass Elmo.load(...)"
            )
        checkpoint = elmo.checkpoint
        softmax, vocabulary = checkpoint.softmax, checkpoint.vocabulary
        if softmax is None or vocabulary is None:
            raise ConfigError(
                "this model has no softmax (published HDF5 weights never do); use a checkpoint "
                "that has one or `elmore fine-tune` to train one"
            )
        dim = elmo.config.lstm.projection_dim
        rows = len(vocabulary)
        if softmax.weight.shape != (rows, dim) or len(softmax.bias) != rows:
            raise FormatError(
                f"{checkpoint.origin} has a softmax of shape {softmax.weight.shape}, expected "
                f"{(rows, dim)}; its files do not belong together"
            )
        # Those that are predicted; an alphabet may read others.
        for marker in vocabulary.markers:
            if marker not in vocabulary:
                raise FormatError(
                    f"the vocabulary of {checkpoint.origin} has no {marker}, which a language "
                    "model predicts; pass the vocabulary that it was trained with"
                )
        self.elmo, self.engine = elmo, elmo.engine
        self.softmax, self.vocabulary = softmax, vocabulary
        self.markers = vocabulary.markers
        self.bidirectional = elmo.config.lstm.bidirectional
        self.unknown = -1 if vocabulary.unknown is None else vocabulary.unknown
        special = [vocabulary.find(marker) for marker in self.markers] + [vocabulary.unknown]
        self.special = [k for k in special if k is not None]

    def half(self, top: Array, direction: int) -> Array:
        """One direction's part of the last axis."""
        dim = self.softmax.weight.shape[1]
        return top[..., direction * dim : (direction + 1) * dim]

    def top(self, sentence: Sentence) -> Array:
        """The top layer of one sentence, markers included, (time, dim)."""
        layers, _ = self.engine.run(self.engine.indexer.batch([sentence.tokens]))
        return np.asarray(layers[-1, 0])

    def predict(self, sentences: Sequence[Sentence]) -> tuple[list[Logs], list[Ids]]:
        """Run a batch.

        Returns:
            log probabilities and targets of each direction, (n_predictions,), sentence after
            sentence in the order of the text: forward it ends with `</S>`, backward it begins
            with `<S>`.
        """
        batch = self.engine.indexer.batch([sentence.tokens for sentence in sentences])
        begin, end = self.vocabulary.encode(self.markers)
        ids = np.zeros(batch.index.shape, np.int64)
        for row, sentence in enumerate(sentences):
            ids[row, 0] = begin
            ids[row, 1 : len(sentence) + 1] = self.vocabulary.encode(sentence.tokens)
            ids[row, len(sentence) + 1] = end
        layers, _ = self.engine.run(batch)
        top = layers[-1]  # (batch, time, dim)
        # After reading tokens 0..t the forward half predicts t + 1, the backward half at t + 1
        # has read from the end down to it and predicts t: both have a pair (t, t + 1) each.
        pairs = np.arange(int(batch.lengths.max()) - 1) < batch.lengths[:, None] - 1
        hidden, targets = [self.half(top, 0)[:, :-1][pairs]], [ids[:, 1:][pairs]]
        if self.bidirectional:
            hidden.append(self.half(top, 1)[:, 1:][pairs])
            targets.append(ids[:, :-1][pairs])
        logs = self.log_probs(np.concatenate(hidden), np.concatenate(targets))
        return np.split(logs, len(hidden)), targets

    def log_probs(self, hidden: Array, targets: Ids) -> Logs:
        """The log probability of each target, (n,), from vectors of one direction, (n, dim)."""
        # Rows are independent, so each thread takes a share of them.
        table, count = self.elmo.log_softmax, self.engine.workers.count
        parts = zip(np.array_split(hidden, count), np.array_split(targets, count), strict=True)
        with one_blas_thread():
            done = self.engine.workers.share([partial(table.of, h, t) for h, t in parts if len(t)])
        logs = np.concatenate(done) if done else np.zeros(0)
        if not np.isfinite(logs).all():
            raise FormatError("the softmax gives values that are not finite; the model is damaged")
        return np.asarray(logs)

    def log_distribution(self, hidden: Array, direction: int) -> Logs:
        """The log probability of every word, (n, n_words), from top-layer vectors (n, dim)."""
        return self.elmo.log_softmax.all(np.ascontiguousarray(self.half(hidden, direction)))


def read_sentence(elmo: Elmo, tokens: str | Sequence[str]) -> Sentence:
    """Turn one text or one list of tokens into a sentence."""
    if isinstance(tokens, str):
        return elmo.tokenize(tokens)
    return sentence_from_tokens(tokens, "the sentence", "pass a string")

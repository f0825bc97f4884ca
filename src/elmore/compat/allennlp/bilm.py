"""AllenNLP's `_ElmoBiLm`: all layers of a batch, with both sentence markers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import Tensor, nn

from elmore.compat.allennlp.files import FileName, read_files
from elmore.compat.allennlp.lstm import ElmoLstm
from elmore.compat.allennlp.tokens import _ElmoCharacterEncoder
from elmore.embedding.torch_network import build_bilm
from elmore.formats.checkpoint import Checkpoint
from elmore.nn.bilm import Layers

__all__ = ["BiLmOutput", "_ElmoBiLm"]

_LOGGER = logging.getLogger(__name__)


class BiLmOutput(TypedDict):
    """For each layer (batch, time + 2, dim), and which places are real, (batch, time + 2)."""

    activations: list[Tensor]
    mask: Tensor


class _ElmoBiLm(nn.Module):
    """A biLM that carries its state from call to call.

    Args:
        options_file: options.json; a path or an address.
        weight_file: the HDF5 weights.
        requires_grad: whether it learns.
        vocab_to_cache: words whose token layer is computed once; the first stands for padding.
            Their ids, passed as `word_inputs`, then replace the characters.
    """

    def __init__(
        self,
        options_file: FileName,
        weight_file: FileName,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        checkpoint = read_files(options_file, weight_file)
        bilm = build_bilm(checkpoint)
        self._token_embedder = _ElmoCharacterEncoder.of(
            bilm.tokens, checkpoint.alphabet, requires_grad
        )
        self._elmo_lstm = ElmoLstm.of(bilm, requires_grad)
        self._requires_grad = requires_grad
        self._word_embedding: nn.Embedding | None = None
        if vocab_to_cache:
            if requires_grad:
                _LOGGER.warning(
                    "cached words learn on their own and no longer by their characters; leave "
                    "vocab_to_cache out while fine-tuning"
                )
            self._cache(checkpoint, vocab_to_cache)
        self.num_layers = checkpoint.config.n_layers
        self._dim = checkpoint.config.dim

    def get_output_dim(self) -> int:
        """Size of a vector, both directions."""
        return self._dim

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> BiLmOutput:
        """Give all layers of a batch.

        Args:
            inputs: character ids, (batch, time, 50).
            word_inputs: ids of cached words, (batch, time), 0 for padding. A batch with a word
                beyond the cache is read by its characters.
        """
        # Without anything to learn, no graph is made, and the LSTMs run their fast way.
        learns = any(parameter.requires_grad for parameter in self.parameters())
        with torch.set_grad_enabled(torch.is_grad_enabled() and learns):
            cached = self._word_embedding
            if cached is not None and word_inputs is not None and self._known(word_inputs):
                layers = self._run_words(cached, word_inputs)
            else:
                batch = self._token_embedder.batch(inputs)
                vectors = self._token_embedder.vectors(batch)
                layers = self._elmo_lstm.run(vectors, batch.index, batch.lengths)
        places = torch.arange(layers.values.shape[2], device=layers.values.device)
        return {
            "activations": list(layers.values),
            "mask": places < layers.lengths[:, None],
        }

    def _cache(self, checkpoint: Checkpoint, words: Sequence[str]) -> None:
        alphabet = checkpoint.alphabet
        if alphabet is None:
            return
        ids = torch.from_numpy(alphabet.encode([*alphabet.markers, *words])).long()
        with torch.no_grad():
            vectors = self._token_embedder.encoder(ids)
        vectors[2] = 0  # the padding, which no LSTM ever sees
        cached = nn.Embedding(len(words), vectors.shape[1], _weight=vectors[2:].clone())
        self._word_embedding = cached.requires_grad_(self._requires_grad)
        self.register_buffer("_marker_vectors", vectors[:2].clone(), persistent=False)

    def _known(self, word_inputs: Tensor) -> bool:
        if self._word_embedding is None:
            return False
        return bool((word_inputs < self._word_embedding.num_embeddings).all())

    def _run_words(self, cached: nn.Embedding, word_inputs: Tensor) -> Layers:
        """Run over cached words; the markers' vectors come first in the table, then the words'."""
        lengths = (word_inputs > 0).sum(dim=1)
        batch, time = word_inputs.shape
        index = word_inputs.new_zeros(batch, time + 2)
        index[:, 1:-1] = word_inputs + 2
        index.scatter_(1, lengths[:, None] + 1, 1)
        vectors = torch.cat([self.get_buffer("_marker_vectors"), cached.weight])
        return self._elmo_lstm.run(vectors, index, lengths + 2)

"""ELMo as a layer of somebody's own torch model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmore.errors import ConfigError
from elmore.nn.bilm import BiLm
from elmore.nn.inputs import TensorBatch
from elmore.nn.mix import LayerNorm, ScalarMix
from elmore.text.batching import TokenIndexer

__all__ = ["ElmoLayer", "without_markers"]


class ElmoLayer(nn.Module):
    """One or more task-specific mixes of a biLM's layers (Peters et al. 2018, §3.2 and §3.3).

    Args:
        bilm: the biLM; shared, not copied.
        indexer: turns tokens into the ids that this biLM reads.
        n_mixes: number of mixes, e.g. 2 to use ELMo at the input and at the output of a task.
        dropout: on each mixed vector, while training.
        trainable_bilm: whether the biLM learns too; if not, it runs without gradients.
        keep_boundaries: keep the vectors of the two sentence markers.
        layer_norm: as in `ScalarMix`.
    """

    def __init__(
        self,
        bilm: BiLm,
        indexer: TokenIndexer,
        *,
        n_mixes: int = 1,
        dropout: float = 0.5,
        trainable_bilm: bool = False,
        keep_boundaries: bool = False,
        layer_norm: LayerNorm | None = None,
    ) -> None:
        super().__init__()
        if n_mixes < 1:
            raise ConfigError(f"n_mixes={n_mixes}; use 1 or more")
        if not 0 <= dropout < 1:
            raise ConfigError(f"dropout={dropout}; use a share from 0 to below 1")
        self.bilm = bilm
        self.indexer = indexer
        self.trainable_bilm = trainable_bilm
        self.keep_boundaries = keep_boundaries
        for parameter in bilm.parameters():
            parameter.requires_grad_(trainable_bilm)
        self.mixes = nn.ModuleList(
            ScalarMix(bilm.config.n_layers, layer_norm=layer_norm) for _ in range(n_mixes)
        )
        self.dropout = nn.Dropout(dropout)

    @property
    def dim(self) -> int:
        """Size of a mixed vector."""
        return self.bilm.config.dim

    def batch(self, sentences: Sequence[Sequence[str]]) -> TensorBatch:
        """Index tokens of one or more sentences, on the device of the layer."""
        if not len(sentences):
            raise ConfigError("there is no sentence in the batch; pass one or more")
        for k, tokens in enumerate(sentences):
            if isinstance(tokens, str):
                raise ConfigError(
                    f"sentence {k} is a string; pass its tokens, e.g. {tokens.split()[:3]!r}"
                )
        return TensorBatch.from_batch(
            self.indexer.batch(sentences), next(self.mixes.parameters()).device
        )

    def from_character_ids(self, ids: Tensor) -> TensorBatch:
        """Use ready ids, (..., time, chars), shifted by one; rows of zeros are padding."""
        alphabet = self.indexer.alphabet
        if alphabet is None or self.indexer.vocabulary is not None:
            raise ConfigError("this model reads words, not characters alone; use batch(tokens)")
        markers = torch.from_numpy(alphabet.encode(alphabet.markers))
        return TensorBatch.from_character_ids(ids, markers.to(ids.device))

    def forward(self, batch: TensorBatch) -> tuple[Tensor, ...]:
        """Mix the layers of a batch.

        Returns:
            for each mix (*shape, time, dim); zero where a sentence has ended. `batch.mask` tells
            which tokens are real.
        """
        gradients = self.trainable_bilm and torch.is_grad_enabled()
        with torch.set_grad_enabled(gradients):
            layers, _ = self.bilm(batch.words, batch.index, batch.lengths, word_ids=batch.word_ids)
        values = layers.values
        places = torch.arange(values.shape[2], device=values.device)
        mask = places < layers.lengths[:, None]
        mixed = []
        for scalar_mix in self.mixes:
            vectors = self.dropout(scalar_mix(values, mask))
            if self.keep_boundaries:
                vectors = vectors * mask[:, :, None]
            else:
                vectors, _ = without_markers(vectors, layers.lengths)
            mixed.append(vectors.view(*batch.shape, *vectors.shape[1:]))
        return tuple(mixed)

    def penalty(self, strength: float) -> Tensor:
        """Give strength * sum of ||w||^2 over all mixes, to add to the task's loss, ()."""
        return torch.stack([m.penalty(strength) for m in self.mixes]).sum()  # type: ignore[operator]  # ModuleList forgets the class


def without_markers(vectors: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Leave the two sentence markers out.

    Args:
        vectors: (batch, time, dim), markers included.
        lengths: tokens of each sentence, markers included, (batch,).

    Returns:
        (batch, time - 2, dim), zero where a sentence has ended, and which tokens are real,
        (batch, time - 2).
    """
    places = torch.arange(vectors.shape[1] - 2, device=vectors.device)
    kept = places < lengths[:, None] - 2
    return vectors[:, 1:-1] * kept[:, :, None], kept

"""ELMo as a layer of your own torch model, and its mixture of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from elmore.errors import ConfigError
from elmore.nn.bilm import BiLm, TensorBatch
from elmore.text.batching import TokenIndexer

LayerNorm = Literal["sentence", "batch"]

# AllenNLP's guard against a zero variance.
_TINY = 1e-13


def mix(layers: Tensor, weights: Tensor, gamma: Tensor) -> Tensor:
    """Weigh the biLM layers into one vector per token (Peters et al. 2018, §3.2, eq. 1).

    From (layers, batch, time, dim) to (batch, time, dim); `weights` are unnormalised layer scores,
    (layers,), and `gamma` is the scale of the complete vector, ().
    """
    return torch.einsum("l,l...->...", gamma * torch.softmax(weights, dim=0), layers)


class ScalarMix(nn.Module):
    """gamma * sum_j s_j h_j with s = softmax(w); all w are one parameter vector.

    Args:
        n_layers: number of layers, the token layer included.
        layer_norm: None, or normalise each layer before mixing: "sentence" with the statistics
            of a sentence's own tokens, "batch" with those of all tokens of the batch (as
            AllenNLP and bilm-tf did: results then depend on the batch).
        initial: scores w to start from; zeros (an equal mix) if not given.
        gamma: scale to start from.
        trainable: False keeps w and gamma as they are.
    """

    def __init__(
        self,
        n_layers: int,
        *,
        layer_norm: LayerNorm | None = None,
        initial: Sequence[float] | None = None,
        gamma: float = 1.0,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        if layer_norm is not None and layer_norm not in get_args(LayerNorm):
            raise ConfigError(f'layer_norm={layer_norm!r}; use None, "sentence" or "batch"')
        if n_layers < 1:
            raise ConfigError(f"n_layers={n_layers}; a mix needs one layer or more")
        scores = [0.0] * n_layers if initial is None else [float(score) for score in initial]
        if len(scores) != n_layers:
            raise ConfigError(
                f"initial has {len(scores)} scores but there are {n_layers} layers; give one each"
            )
        self.layer_norm = layer_norm
        self.weights = nn.Parameter(torch.tensor(scores), requires_grad=trainable)
        self.gamma = nn.Parameter(torch.tensor(float(gamma)), requires_grad=trainable)

    def forward(self, layers: Tensor | Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Mix layers.

        Args:
            layers: (layers, batch, time, dim), or one (batch, time, dim) for each layer.
            mask: which tokens are real, (batch, time); needed with a layer norm, where padding
                must not count.

        Returns:
            (batch, time, dim).
        """
        values = layers if isinstance(layers, Tensor) else torch.stack(tuple(layers))
        if values.shape[0] != len(self.weights):
            raise ConfigError(
                f"{values.shape[0]} layers for a mix of {len(self.weights)}; give all layers"
            )
        if self.layer_norm is not None:
            if mask is None:
                raise ConfigError("a mix with layer_norm needs to know the padding; pass mask")
            values = normalise(values, mask, self.layer_norm)
        return mix(values, self.weights, self.gamma)

    def penalty(self, strength: float) -> Tensor:
        """strength * ||w||^2, the paper's pull towards an equal mix (§3.3), ()."""
        return strength * self.weights.square().sum()


def normalise(values: Tensor, mask: Tensor, kind: LayerNorm) -> Tensor:
    """Shift and scale each layer to mean 0 and variance 1 over its real tokens and features.

    `values` is (layers, batch, time, dim), `mask` (batch, time); `kind` as in `ScalarMix`.
    """
    dims = (2, 3) if kind == "sentence" else (1, 2, 3)
    real = mask.to(values.dtype)[None, :, :, None]
    # An empty sentence has no tokens to divide by.
    counts = real.sum(dim=dims, keepdim=True).clamp(min=1) * values.shape[3]
    mean = (values * real).sum(dim=dims, keepdim=True) / counts
    variance = ((values - mean) * real).square().sum(dim=dims, keepdim=True) / counts
    return (values - mean) / torch.sqrt(variance + _TINY)


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
        # An optimizer over layer.parameters() must leave a frozen biLM alone.
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
        # A frozen biLM needs no graph, which would keep the gates of all layers in memory.
        gradients = self.trainable_bilm and torch.is_grad_enabled()
        with torch.set_grad_enabled(gradients):
            layers, _ = self.bilm(batch.words, batch.index, batch.lengths, word_ids=batch.word_ids)
        places = torch.arange(layers.shape[2], device=layers.device)
        mask = places < batch.lengths[:, None]
        mixed = []
        for scalar_mix in self.mixes:
            vectors = self.dropout(scalar_mix(layers, mask))
            # A layer norm shifts padding away from zero; callers rely on zeros there.
            if self.keep_boundaries:
                vectors = vectors * mask[:, :, None]
            else:
                vectors, _ = without_markers(vectors, batch.lengths)
            mixed.append(vectors.view(*batch.shape, *vectors.shape[1:]))
        return tuple(mixed)

    def penalty(self, strength: float) -> Tensor:
        """strength * sum of ||w||^2 over all mixes, to add to the task's loss, ()."""
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

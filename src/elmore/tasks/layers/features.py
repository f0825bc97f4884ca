"""What a task model sees of a token: a word vector, its spelling, and mixes of biLM layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from elmore.nn.bilm import BiLm
from elmore.nn.elmo_layer import LayerNorm, ScalarMix
from elmore.nn.inputs import TensorBatch

__all__ = ["ElmoMixes", "Network", "SpellingCnn", "TokenFeatures", "Tokens", "WordTable"]


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a batch as ids."""

    lengths: Tensor  # tokens of each sentence, (batch,)
    mask: Tensor  # which places hold a token, (batch, time)
    words: Tensor  # rows of the word table, (batch, time); 0 is padding, 1 an unknown word
    spellings: Tensor  # bytes of the distinct words, (n_words, chars); 0 is padding
    spelled: Tensor  # which of them is where, (batch, time)
    layers: Tensor | None = None  # frozen layers of the biLM, (layers, batch, time, dim), or None
    # input of a biLM that is trained too, or None: the sentences of all texts
    bilm: TensorBatch | None = None
    read_at: Tensor | None = None  # where each token is among theirs, (batch, time), or None


class WordTable(nn.Module):
    """Word vectors: rows that are trained, then rows that stay, and one for unknown words.

    Row 0 is padding, row 1 the unknown word, which is always trained; the trained rows come
    first, so that an optimiser never sees the others.
    """

    fixed: Tensor

    def __init__(self, trained: Tensor, fixed: Tensor) -> None:
        super().__init__()
        self.unknown = nn.Parameter(torch.zeros(trained.shape[1]))
        self.trained = nn.Parameter(trained.clone()) if len(trained) else None
        self.n_trained = len(trained)
        self.register_buffer("fixed", fixed.clone())

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return len(self.unknown)

    def forward(self, ids: Tensor) -> Tensor:
        """Look words up, (batch, time) to (batch, time, dim); zeros at padding."""
        n, places = self.n_trained, ids - 2
        vectors = (ids == 1)[..., None] * self.unknown
        if len(self.fixed):
            known = places >= n
            rows = (places - n).clamp(min=0)
            vectors = vectors + nn.functional.embedding(rows, self.fixed) * known[..., None]
        if self.trained is not None:
            known = (places >= 0) & (places < n)
            rows = places.clamp(0, n - 1)
            vectors = vectors + nn.functional.embedding(rows, self.trained) * known[..., None]
        return vectors


class SpellingCnn(nn.Module):
    """A CNN over the bytes of a word: convolutions, ReLU, maximum over places; as in the recipe."""

    def __init__(self, filters: Sequence[tuple[int, int]], dim: int, dropout: float) -> None:
        super().__init__()
        self.bytes = nn.Embedding(257, dim, padding_idx=0)  # 256 bytes, shifted by one
        self.convolutions = nn.ModuleList(
            nn.Conv1d(dim, number, width) for width, number in filters
        )
        self.dropout = nn.Dropout(dropout)
        self.widest = max(width for width, _ in filters)
        self.dim = sum(number for _, number in filters)

    def forward(self, spellings: Tensor) -> Tensor:
        """Read words, (n_words, chars) to (n_words, dim)."""
        # Each window starts inside the word and may reach past its end, where it sees zeros:
        # so a word's features do not depend on the longest word of the batch.
        padded = nn.functional.pad(spellings, (0, self.widest - 1))
        x = self.dropout(self.bytes(padded)).transpose(1, 2)  # (n_words, dim, chars)
        if not spellings.numel():
            return torch.zeros(len(spellings), self.dim, device=spellings.device)
        inside = (spellings > 0)[:, None]
        chars = spellings.shape[1]
        return torch.cat(
            [
                (torch.relu(convolution(x)[:, :, :chars]) * inside).amax(2)
                for convolution in self.convolutions
            ],
            dim=1,
        )


class ElmoMixes(nn.Module):
    """The mixes of a biLM's layers that a task learns, one for each place where they enter.

    With layers="top" it is the last layer alone, which keeps its gamma; with "each" there are all
    layers side by side, (layers * dim) numbers per token without a mix. `bilm` is the biLM while
    it is trained with the task; else its layers are computed before.
    """

    def __init__(
        self,
        n_layers: int,
        dim: int,
        *,
        places: int,
        layers: Literal["all", "top", "each"] = "all",
        dropout: float = 0.0,
        layer_norm: LayerNorm | None = None,
    ) -> None:
        super().__init__()
        self.top, each = layers == "top", layers == "each"
        self.dim, self.places = dim * n_layers if each else dim, places
        self.first = n_layers - 1 if self.top else 0  # the number of the first layer that is mixed
        used = 1 if self.top else n_layers
        self.mixes = nn.ModuleList(
            ScalarMix(used, layer_norm=layer_norm) for _ in range(0 if each else places)
        )
        self.dropout = nn.Dropout(dropout)
        self.bilm: BiLm | None = None

    def forward(self, tokens: Tokens) -> list[Tensor]:
        """Mix the layers of a batch: for each place (batch, time, dim); zeros at padding."""
        values = tokens.layers
        if values is None:
            values = self._layers(tokens)
        if self.top:
            values = values[-1:]
        real = tokens.mask[:, :, None]
        if not self.mixes:
            side_by_side = values.permute(1, 2, 0, 3).flatten(2) * real
            return [self.dropout(side_by_side) for _ in range(self.places)]
        return [self.dropout(mix(values, tokens.mask)) * real for mix in self.mixes]

    def _layers(self, tokens: Tokens) -> Tensor:
        if self.bilm is None or tokens.bilm is None or tokens.read_at is None:
            raise RuntimeError("neither layers nor the input of a biLM; make the batch again")
        batch = tokens.bilm
        layers, _ = self.bilm(batch.words, batch.index, batch.lengths, word_ids=batch.word_ids)
        values: Tensor = layers.values[:, :, 1:-1]  # without those of the sentence markers
        return values.flatten(1, 2)[:, tokens.read_at]

    def penalty(self, strength: float) -> Tensor:
        """strength * ||w||^2 over all mixes (Peters et al. 2018, §3.3), ()."""
        return torch.stack([mix.penalty(strength) for mix in self.mixes]).sum()  # type: ignore[operator]  # ModuleList forgets the class


class TokenFeatures(nn.Module):
    """The input of a task model: [word; spelling; ELMo], and ELMo for its output.

    The first mix belongs to the input if `elmo_input`, the last to the output if `elmo_output`.
    """

    def __init__(
        self,
        words: WordTable | None,
        spelling: SpellingCnn | None,
        elmo: ElmoMixes | None,
        *,
        elmo_input: bool = False,
        elmo_output: bool = False,
    ) -> None:
        super().__init__()
        self.words, self.spelling, self.elmo = words, spelling, elmo
        self.elmo_input = elmo is not None and elmo_input
        self.elmo_output = elmo is not None and elmo_output
        elmo_dim = 0 if elmo is None else elmo.dim
        self.own_dim = (words.dim if words else 0) + (spelling.dim if spelling else 0)
        self.dim = self.own_dim + elmo_dim * self.elmo_input
        self.output_dim = elmo_dim * self.elmo_output

    def forward(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Input vectors (batch, time, dim) and ELMo for the output (batch, time, output_dim).

        Where no ELMo enters at the output, its vectors have no features.
        """
        parts = []
        if self.words is not None:
            parts.append(self.words(tokens.words))
        if self.spelling is not None:
            parts.append(self.spelling(tokens.spellings)[tokens.spelled] * tokens.mask[:, :, None])
        mixed = self.elmo(tokens) if self.elmo is not None else []
        if self.elmo_input:
            parts.append(mixed[0])
        above = mixed[-1] if self.elmo_output else tokens.mask[:, :, None][:, :, :0].float()
        return torch.cat(parts, dim=2), above

    def penalty(self, strength: float) -> Tensor | float:
        """The penalty of the mixes, 0 without ELMo."""
        mixes = self.elmo is not None and len(self.elmo.mixes)
        return self.elmo.penalty(strength) if self.elmo and mixes and strength else 0.0


class Network(nn.Module):
    """A task's network: token features, then what the task makes of them."""

    def __init__(self, features: TokenFeatures) -> None:
        super().__init__()
        self.features = features

"""From the arrays of a `Batch` to the tensors that a biLM reads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from elmore.errors import ConfigError
from elmore.text.batching import Batch

__all__ = ["TensorBatch"]


@dataclass(frozen=True, slots=True)
class TensorBatch:
    """Sentences as tensors; each distinct word is in it once.

    Attributes:
        words: character ids of the distinct words, (n_words, chars), or None.
        word_ids: rows of the distinct words in the word table, (n_words,), or None.
        index: word of each place, (batch, time).
        lengths: tokens of each sentence, markers included, (batch,).
        shape: leading dimensions of the input; (batch,) for a plain list of sentences.
    """

    words: Tensor | None
    word_ids: Tensor | None
    index: Tensor
    lengths: Tensor
    shape: tuple[int, ...]

    @classmethod
    def from_batch(cls, batch: Batch, device: torch.device | str = "cpu") -> TensorBatch:
        """Move the arrays of a batch to a device."""
        return cls(
            words=_tensor(batch.words, device),
            word_ids=_tensor(batch.word_ids, device),
            index=torch.from_numpy(batch.index).to(device),
            lengths=torch.from_numpy(batch.lengths).to(device),
            shape=(len(batch.lengths),),
        )

    @classmethod
    def from_character_ids(
        cls, ids: Tensor, markers: Tensor, *, marked: bool = False
    ) -> TensorBatch:
        """Find the distinct words of ready character ids, and put each row between markers.

        Args:
            ids: (..., time, chars), shifted by one so that a row of zeros is padding.
            markers: character ids of the tokens that open and close a sentence, (2, chars).
            marked: whether each row of `ids` is between markers already.
        """
        if ids.dim() < 3 or ids.shape[-1] != markers.shape[1]:
            raise ConfigError(
                f"character ids of shape {tuple(ids.shape)}; expected (..., time, "
                f"{markers.shape[1]})"
            )
        flat = ids.flatten(0, -3).long()
        real = (flat > 0).any(dim=-1)
        lengths = real.sum(dim=1)
        batch, time = real.shape
        # Lengths alone say where a sentence ends, so nothing may be missing in the middle.
        if not torch.equal(real, torch.arange(time, device=ids.device) < lengths[:, None]):
            raise ConfigError("padding before the end of a sentence; put rows of zeros last")
        distinct, where = torch.unique(
            torch.cat([markers.to(flat), flat[real]]), dim=0, return_inverse=True
        )
        # The markers came first: `where[:2]` are their places, `where[2:]` those of the words.
        if marked:
            index = where.new_zeros(batch, time)
            index[real] = where[2:]
        else:
            index = where.new_zeros(batch, time + 2)
            index[:, 0] = where[0]
            index[:, 1:-1][real] = where[2:]
            index.scatter_(1, lengths[:, None] + 1, where[1].expand(batch, 1))
            lengths = lengths + 2
        return cls(distinct, None, index, lengths, ids.shape[:-2])

    @property
    def mask(self) -> Tensor:
        """Which places hold a token of the sentence, markers left out, (*shape, time - 2)."""
        inner = self.index.shape[1] - 2
        places = torch.arange(inner, device=self.lengths.device)
        return (places < self.lengths[:, None] - 2).view(*self.shape, inner)

    def to(self, device: torch.device | str) -> TensorBatch:
        """Move all tensors to a device."""
        words, word_ids = _tensor(self.words, device), _tensor(self.word_ids, device)
        index, lengths = self.index.to(device), self.lengths.to(device)
        return TensorBatch(words, word_ids, index, lengths, self.shape)


def _tensor(array: object, device: torch.device | str) -> Tensor | None:
    return None if array is None else torch.as_tensor(array).long().to(device)

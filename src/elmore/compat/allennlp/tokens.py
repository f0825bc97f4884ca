"""AllenNLP's `_ElmoCharacterEncoder`: characters to vectors that know no context."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from elmore.compat.allennlp.files import FileName, read_files
from elmore.compat.allennlp.layouts import keep_allennlp_layout
from elmore.embedding.torch_network import build_bilm
from elmore.nn.charcnn import TokenEncoder
from elmore.nn.inputs import TensorBatch
from elmore.text.characters import Alphabet

__all__ = ["_ElmoCharacterEncoder"]


class _ElmoCharacterEncoder(nn.Module):
    """The token layer of a biLM.

    Args:
        options_file: options.json; a path or an address.
        weight_file: the HDF5 weights.
        requires_grad: whether it learns.
    """

    def __init__(
        self, options_file: FileName, weight_file: FileName, requires_grad: bool = False
    ) -> None:
        super().__init__()
        checkpoint = read_files(options_file, weight_file)
        self._hold(build_bilm(checkpoint).tokens, checkpoint.alphabet, requires_grad)

    @classmethod
    def of(
        cls, encoder: TokenEncoder, alphabet: Alphabet | None, requires_grad: bool
    ) -> _ElmoCharacterEncoder:
        """Make one that shares a token encoder which is there already."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made._hold(encoder, alphabet, requires_grad)
        return made

    def _hold(self, encoder: TokenEncoder, alphabet: Alphabet | None, requires_grad: bool) -> None:
        self.encoder = encoder
        self.requires_grad = requires_grad
        encoder.requires_grad_(requires_grad)
        markers = alphabet.encode(alphabet.markers) if alphabet is not None else None
        self.register_buffer("_markers", torch.as_tensor(markers).long(), persistent=False)
        keep_allennlp_layout(self)

    def get_output_dim(self) -> int:
        """Size of a vector."""
        projection = self.encoder.projection
        if projection is not None:
            return len(projection.bias)
        return self.encoder.config.n_features

    def batch(self, inputs: Tensor) -> TensorBatch:
        """Find the distinct words of character ids, (batch, time, 50), and add the markers."""
        markers: Tensor = self.get_buffer("_markers")
        return TensorBatch.from_character_ids(inputs, markers)

    def vectors(self, batch: TensorBatch) -> Tensor:
        """Give the vectors of the distinct words of a batch, (n_words, dim)."""
        words = batch.words
        if words is None or not (words == 0).any():
            return cast(Tensor, self.encoder(words))
        # AllenNLP's table has a row of zeros for id 0, which no text leads to but made-up ids do.
        # The encoder's table has none: such words are read with one more character at its end.
        table = self.encoder.characters
        more = torch.cat([table, table.new_zeros(1, table.shape[1])])
        words = words.masked_fill(words == 0, len(more))
        learns = torch.is_grad_enabled()
        with torch.enable_grad():  # the way without gradients keeps tables of the plain size
            vectors = torch.func.functional_call(self.encoder, {"characters": more}, (words,))
        return cast(Tensor, vectors if learns else vectors.detach())

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """Give the vectors of a batch with both markers.

        Args:
            inputs: character ids, (batch, time, 50).

        Returns:
            `token_embedding` (batch, time + 2, dim), zero where a sentence has ended, and `mask`
            (batch, time + 2).
        """
        batch = self.batch(inputs)
        places = torch.arange(batch.index.shape[1], device=inputs.device)
        mask = places < batch.lengths[:, None]
        vectors = self.vectors(batch)[batch.index]
        return {"mask": mask, "token_embedding": vectors * mask[:, :, None]}

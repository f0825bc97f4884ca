"""bilm-tf's `BidirectionalLanguageModel` and `weight_layers`: all layers, and a task's mix."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmore.base.io import open_checked
from elmore.compat.bilm.data import dump_bilm_embeddings as dump_bilm_embeddings
from elmore.compat.bilm.data import dump_token_embeddings as dump_token_embeddings
from elmore.embedding.load import read_checkpoint
from elmore.embedding.torch_network import build_bilm
from elmore.errors import ConfigError, FormatError
from elmore.formats.containers.hdf5_files import open_hdf5
from elmore.nn.bilm import BiLmState, TensorBatch, first_rows, store_rows
from elmore.nn.elmo_layer import ScalarMix, without_markers

Ids = NDArray[np.int64]


class BiLmOps(TypedDict):
    """What the model gives for a batch, markers left out.

    `lm_embeddings` (batch, layers, time, dim), `lengths` (batch,), `mask` (batch, time), and with
    the markers `token_embeddings` (batch, time + 2, dim of one direction); zero where a sentence
    has ended.
    """

    lm_embeddings: Tensor
    lengths: Tensor
    token_embeddings: Tensor
    mask: Tensor


class BidirectionalLanguageModel:
    """A biLM with the state of `max_batch_size` rows, which is carried from call to call.

    It reads the ids of `Batcher`; without `use_character_inputs` those of `TokenBatcher`, and then
    it needs the vectors of the words, `embedding_weight_file`, as `dump_token_embeddings` writes
    them.
    """

    def __init__(
        self,
        options_file: str | Path,
        weight_file: str | Path,
        use_character_inputs: bool = True,
        embedding_weight_file: str | Path | None = None,
        max_batch_size: int = 128,
    ) -> None:
        checkpoint = read_checkpoint((options_file, weight_file))
        self._max_rows = max_batch_size
        self._table = self._markers = torch.empty(0)
        if use_character_inputs:
            alphabet = checkpoint.alphabet
            if alphabet is None:
                raise ConfigError(f"'{weight_file}' reads words; pass use_character_inputs=False")
            self._markers = torch.from_numpy(alphabet.encode(alphabet.markers)).long()
        elif embedding_weight_file is None:
            raise ConfigError("without characters the words need vectors: embedding_weight_file=")
        else:
            dim = checkpoint.config.lstm.projection_dim
            self._table = _read_embedding(Path(embedding_weight_file), dim)
        self._bilm = build_bilm(checkpoint)
        self.state: BiLmState = self._bilm.zero_state(max_batch_size)

    def __call__(self, ids: Ids | Tensor) -> BiLmOps:
        """Run a batch of ids: (batch, time, chars) of `Batcher`, or (batch, time)."""
        values = torch.as_tensor(ids).long()
        if len(values) > self._max_rows:
            raise ConfigError(
                f"a batch of {len(values)} sentences for max_batch_size={self._max_rows}; raise it"
            )
        with torch.no_grad():
            vectors, index, lengths = self._words(values)
            before = first_rows(self.state, len(values), self._bilm.zero_state)
            layers, after = self._bilm.contextualize(vectors, index, lengths, before)
            # bilm-tf kept the state in TensorFlow variables; here it may be read and set.
            self.state = store_rows(self.state, after)
            trimmed = [without_markers(layer, lengths) for layer in layers]
            # The token layer holds the same vector twice, once for each direction.
            once = layers[0, ..., : vectors.shape[1]]
        return {
            "lm_embeddings": torch.stack([layer for layer, _ in trimmed], dim=1),
            "lengths": lengths - 2,
            "token_embeddings": once,
            "mask": trimmed[0][1],
        }

    def _words(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The vectors of the distinct words, which word is where, and the lengths."""
        if len(self._markers):
            batch = TensorBatch.from_character_ids(ids, self._markers, marked=True)
            vectors: Tensor = self._bilm.tokens(batch.words)
            return vectors, batch.index, batch.lengths
        if ids.dim() != 2 or int(ids.max()) > len(self._table) or int(ids.min()) < 0:
            raise ConfigError(
                f"ids of shape {tuple(ids.shape)} do not fit a table of {len(self._table)} "
                "words; use those of TokenBatcher with the same vocabulary"
            )
        return self._table, (ids - 1).clamp(min=0), (ids > 0).sum(dim=1)


def _read_embedding(path: Path, dim: int) -> Tensor:
    """Read the dataset `embedding`, (n_words, dim)."""
    with open_hdf5(open_checked(path, what="token vectors"), what=str(path)) as view:
        shape = view.shapes.get("embedding")
        if shape is None or len(shape) != 2 or shape[1] != dim:
            raise FormatError(
                f"'{path}': `embedding` has shape {shape}, expected (words, {dim}) from the model; "
                "write it with dump_token_embeddings"
            )
        return torch.from_numpy(view.floats("embedding"))


class LayerWeights(nn.Module):
    """Mixes the layers that `BidirectionalLanguageModel` gives.

    Args:
        name: what bilm-tf called its variables after.
        n_layers: number of layers.
        l2_coef: strength of the pull of the scores towards zero; None for 0.
        use_top_only: the top layer times gamma, without scores.
        do_layer_norm: normalise each layer over all tokens of the batch first.
    """

    def __init__(
        self,
        name: str,
        n_layers: int,
        l2_coef: float | None = None,
        use_top_only: bool = False,
        do_layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self.l2_coef = l2_coef or 0.0
        self.use_top_only = use_top_only
        # bilm-tf normalized with the statistics of the complete batch.
        norm = "batch" if do_layer_norm and not use_top_only else None
        self.mix = ScalarMix(1 if use_top_only else n_layers, layer_norm=norm)  # type: ignore[arg-type]  # mypy widens the literal
        self.mix.weights.requires_grad_(not use_top_only)

    def forward(self, bilm_ops: BiLmOps) -> Tensor:
        """Mix a batch, (batch, time, dim)."""
        layers = bilm_ops["lm_embeddings"].transpose(0, 1)
        mixed: Tensor = self.mix(layers[-1:] if self.use_top_only else layers, bilm_ops["mask"])
        return mixed

    def regularization(self) -> Tensor:
        """`l2_coef` times the sum of squared scores, ()."""
        if self.use_top_only:
            return torch.zeros(())
        return self.mix.penalty(self.l2_coef)


def weight_layers(
    name: str,
    bilm_ops: BiLmOps,
    l2_coef: float | None = None,
    use_top_only: bool = False,
    do_layer_norm: bool = False,
) -> dict[str, Any]:
    """Make a mix and apply it to a batch; the other arguments are those of `LayerWeights`.

    Returns:
        `weighted_op` (batch, time, dim), `regularization_op` (), and `module`, which holds what
        learns: call it with the next batch, and give its parameters to an optimizer.
    """
    module = LayerWeights(
        name, bilm_ops["lm_embeddings"].shape[1], l2_coef, use_top_only, do_layer_norm
    )
    return {
        "weighted_op": module(bilm_ops),
        "regularization_op": module.regularization(),
        "module": module,
    }

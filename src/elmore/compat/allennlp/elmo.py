"""AllenNLP's `Elmo`: mixes of a biLM's layers, as a module."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, TypedDict

from torch import Tensor, nn

from elmore.compat.allennlp.bilm import _ElmoBiLm
from elmore.compat.allennlp.files import FileName
from elmore.compat.allennlp.scalar_mix import ScalarMix
from elmore.errors import ConfigError
from elmore.errors import ConfigError as ConfigurationError
from elmore.nn.elmo_layer import without_markers

__all__ = ["ConfigurationError", "Elmo", "ElmoOutput"]

_LOGGER = logging.getLogger(__name__)


class ElmoOutput(TypedDict):
    """One tensor (..., time, dim) for each mix, and which tokens are real, (..., time)."""

    elmo_representations: list[Tensor]
    mask: Tensor


class Elmo(nn.Module):
    """Task-specific mixes of the layers of a biLM that carries its state from call to call.

    The state is that of AllenNLP: call `_elmo_lstm._elmo_lstm.reset_states()` to forget it, or set
    `_elmo_lstm._elmo_lstm.stateful = False` for results that depend on the batch alone.

    Args:
        options_file: options.json; a path or an address. None with `module`.
        weight_file: the HDF5 weights. None with `module`.
        num_output_representations: number of mixes.
        requires_grad: whether the biLM learns; the mixes always do.
        do_layer_norm: normalise the layers before they are mixed.
        dropout: on the mixed vectors, while training.
        vocab_to_cache: words whose token layer is computed once; see `_ElmoBiLm`.
        keep_sentence_boundaries: keep the vectors of both markers.
        scalar_mix_parameters: fixed scores of the layers; the mixes then do not learn.
        module: a biLM to use instead of the files.

    Examples:
        >>> elmo = Elmo("options.json", "weights.hdf5", 2, dropout=0)
        >>> output = elmo(batch_to_ids([["First", "sentence", "."], ["Another"]]))
        >>> [tuple(r.shape) for r in output["elmo_representations"]], tuple(output["mask"].shape)
        ([(2, 3, 32), (2, 3, 32)], (2, 3))
    """

    def __init__(
        self,
        options_file: FileName | None,
        weight_file: FileName | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if module is not None:
            if options_file is not None or weight_file is not None:
                raise ConfigError("module= stands instead of the files; pass None for both")
            self._elmo_lstm: Any = module
        elif options_file is None or weight_file is None:
            raise ConfigError("pass options_file and weight_file, or module=")
        else:
            self._elmo_lstm = _ElmoBiLm(
                options_file,
                weight_file,
                requires_grad=requires_grad,
                vocab_to_cache=vocab_to_cache,
            )
        self._has_cached_vocab = vocab_to_cache is not None
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(p=dropout)
        self._n_mixes = num_output_representations
        for k in range(num_output_representations):
            scalar_mix = ScalarMix(
                self._elmo_lstm.num_layers,
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            self.add_module(f"scalar_mix_{k}", scalar_mix)

    @property
    def _scalar_mixes(self) -> list[ScalarMix]:
        return [getattr(self, f"scalar_mix_{k}") for k in range(self._n_mixes)]

    def get_output_dim(self) -> int:
        """Size of a mixed vector."""
        dim: int = self._elmo_lstm.get_output_dim()
        return dim

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> ElmoOutput:
        """Mix the layers of a batch.

        Args:
            inputs: character ids of `batch_to_ids`, (batch, time, 50) or with more axes in front.
            word_inputs: ids of cached words, (batch, time) or with more axes in front.
        """
        if word_inputs is not None and not self._has_cached_vocab:
            _LOGGER.warning("word_inputs without vocab_to_cache: they are not used")
            word_inputs = None
        # Of cached words the characters are never looked at, and may have any shape.
        shape = inputs.shape[:-2] if word_inputs is None else word_inputs.shape[:-1]
        flat = None if word_inputs is None else word_inputs.flatten(0, -2)
        output = self._elmo_lstm(inputs.flatten(0, -3), flat)
        mask_with_markers: Tensor = output["mask"]
        lengths = mask_with_markers.sum(dim=1)
        representations, mask = [], mask_with_markers
        for scalar_mix in self._scalar_mixes:
            vectors = scalar_mix(output["activations"], mask_with_markers)
            if not self._keep_sentence_boundaries:
                vectors, mask = without_markers(vectors, lengths)
            vectors = self._dropout(vectors)
            representations.append(vectors.view(*shape, *vectors.shape[1:]))
        return {
            "elmo_representations": representations,
            "mask": mask.view(*shape, mask.shape[-1]),
        }

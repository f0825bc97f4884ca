"""AllenNLP's token embedders: one mix of ELMo, projected or aligned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from elmore.compat.allennlp.elmo import Elmo
from elmore.compat.allennlp.files import OPTIONS, WEIGHTS, FileName, local_file
from elmore.errors import ConfigError, FormatError
from elmore.formats.files.sources import FilesSource
from elmore.formats.files.torch_files import read_array

__all__ = ["ElmoTokenEmbedder", "ElmoTokenEmbedderMultiLang"]


class ElmoTokenEmbedder(nn.Module):
    """One mix of a biLM's layers.

    Args:
        options_file: options.json; AllenNLP's default, the original model, if not given.
        weight_file: the HDF5 weights.
        do_layer_norm: as in `Elmo`.
        dropout: as in `Elmo`.
        requires_grad: as in `Elmo`.
        projection_dim: size to project the vectors to.
        vocab_to_cache: as in `Elmo`.
        scalar_mix_parameters: as in `Elmo`.
    """

    def __init__(
        self,
        options_file: FileName = OPTIONS,
        weight_file: FileName = WEIGHTS,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: Sequence[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self._elmo = Elmo(
            options_file,
            weight_file,
            1,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            requires_grad=requires_grad,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
        )
        dim = self._elmo.get_output_dim()
        self._projection = nn.Linear(dim, projection_dim) if projection_dim else None
        self.output_dim = projection_dim or dim

    def get_output_dim(self) -> int:
        """Size of a vector."""
        return self.output_dim

    def forward(self, elmo_tokens: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        """Give the vectors of character ids (..., time, 50), (..., time, dim)."""
        vectors: Tensor = self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]
        return vectors if self._projection is None else self._projection(vectors)


class ElmoTokenEmbedderMultiLang(nn.Module):
    """One ELMo for each language, each followed by a fixed matrix that aligns it (AllenNLP 0.9).

    Args:
        options_files: options.json by language.
        weight_files: HDF5 weights by language.
        do_layer_norm: as in `Elmo`.
        dropout: as in `Elmo`.
        requires_grad: as in `Elmo`.
        projection_dim: size to project the vectors to.
        vocab_to_cache: as in `Elmo`.
        scalar_mix_parameters: as in `Elmo`; the published alignments are for [-9e10, 1, -9e10].
        aligning_files: matrices by language, files of torch.save; identity for the others.
    """

    def __init__(
        self,
        options_files: Mapping[str, FileName],
        weight_files: Mapping[str, FileName],
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: Sequence[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
        aligning_files: Mapping[str, FileName] | None = None,
    ) -> None:
        super().__init__()
        if not weight_files or set(options_files) != set(weight_files):
            raise ConfigError("options_files and weight_files must name the same languages")
        unknown = set(aligning_files or {}) - set(weight_files)
        if unknown:
            raise ConfigError(f"aligning_files has {sorted(unknown)[0]!r}, of which no model is")
        dim: int | None = None
        for language in weight_files:
            elmo = Elmo(
                options_files[language],
                weight_files[language],
                1,
                do_layer_norm=do_layer_norm,
                dropout=dropout,
                requires_grad=requires_grad,
                vocab_to_cache=vocab_to_cache,
                scalar_mix_parameters=scalar_mix_parameters,
            )
            if dim not in (None, elmo.get_output_dim()):
                raise ConfigError(
                    f"the vectors of {language!r} have {elmo.get_output_dim()} numbers, those of "
                    f"other languages {dim}; use models of one size"
                )
            dim = elmo.get_output_dim()
            self.add_module(f"elmo_{language}", elmo)
            file = (aligning_files or {}).get(language)
            self.add_module(f"aligning_{language}", _aligning(file, dim))
        self._languages = tuple(weight_files)
        self._projection = nn.Linear(dim or 0, projection_dim) if projection_dim else None
        self.output_dim = projection_dim or dim or 0

    def get_output_dim(self) -> int:
        """Size of a vector."""
        return self.output_dim

    def forward(self, inputs: Tensor, lang: str, word_inputs: Tensor | None = None) -> Tensor:
        """Give the aligned vectors of character ids (..., time, 50) of a language."""
        if lang not in self._languages:
            raise ConfigError(f"lang={lang!r}; use one of {', '.join(self._languages)}")
        elmo: Elmo = getattr(self, f"elmo_{lang}")
        aligning: nn.Linear = getattr(self, f"aligning_{lang}")
        vectors: Tensor = aligning(elmo(inputs, word_inputs)["elmo_representations"][0])
        return vectors if self._projection is None else self._projection(vectors)


def _aligning(file: FileName | None, dim: int) -> nn.Linear:
    """Make a layer that multiplies by a matrix, which does not learn."""
    matrix = torch.eye(dim)
    if file:
        path = local_file(file)
        with FilesSource({path.name: path}) as source:
            array = read_array(source, path.name)
        if array.shape != (dim, dim):
            raise FormatError(
                f"'{file}' holds an array of shape {array.shape}, expected {(dim, dim)}; pass the "
                "alignment of this model"
            )
        matrix = torch.from_numpy(array).float()
    layer = nn.Linear(dim, dim, bias=False)
    layer.weight = nn.Parameter(matrix, requires_grad=False)
    return layer

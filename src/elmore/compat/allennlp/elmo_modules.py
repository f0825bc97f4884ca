"""AllenNLP's `Elmo`, `ScalarMix` and token embedders: mixes of a biLM's layers, as modules."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from elmore.compat.allennlp.bilm_modules import _ElmoBiLm
from elmore.compat.allennlp.embedder import (
    DEFAULT_OPTIONS_FILE,
    DEFAULT_WEIGHT_FILE,
    FileName,
    cached_path,
)
from elmore.errors import ConfigError, FormatError
from elmore.formats.containers.sources import files_source
from elmore.formats.containers.torch_files import read_array
from elmore.nn.elmo_layer import mix, normalise, without_markers

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
        do_layer_norm: normalize the layers before they are mixed.
        dropout: on the mixed vectors, while training.
        vocab_to_cache: words whose token layer is computed once; see `_ElmoBiLm`.
        keep_sentence_boundaries: keep the vectors of both markers.
        scalar_mix_parameters: fixed scores of the layers; the mixes then do not learn.
        module: a biLM to use instead of the files.
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
                raise ConfigError("module= replaces the files; pass None for both")
            # Any module with AllenNLP's interface will do, so there is no type to state.
            self._elmo_lstm: Any = module
        elif options_file is None or weight_file is None:
            raise ConfigError("pass options_file and weight_file, or module=")
        else:
            self._elmo_lstm = _ElmoBiLm(options_file, weight_file, requires_grad, vocab_to_cache)
        self._has_cached_vocab = vocab_to_cache is not None
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(p=dropout)
        self._scalar_mixes: list[ScalarMix] = []
        for k in range(num_output_representations):
            scalar_mix = ScalarMix(
                self._elmo_lstm.num_layers,
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            # By this name and not in a ModuleList: state dicts of AllenNLP have these keys.
            self.add_module(f"scalar_mix_{k}", scalar_mix)
            self._scalar_mixes.append(scalar_mix)

    def get_output_dim(self) -> int:
        """Size of a mixed vector."""
        return int(self._elmo_lstm.get_output_dim())

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> ElmoOutput:
        """Mix the layers of a batch, which may have more axes in front.

        Args:
            inputs: character ids of `batch_to_ids`, (batch, time, 50).
            word_inputs: ids of cached words, (batch, time).
        """
        if word_inputs is not None and not self._has_cached_vocab:
            _LOGGER.warning("word_inputs without vocab_to_cache: they are not used")
            word_inputs = None
        # The characters of cached words are never read, and may have any shape.
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
        return {"elmo_representations": representations, "mask": mask.view(*shape, mask.shape[-1])}


class ScalarMix(nn.Module):
    """gamma * sum(s_k * tensor_k), s = softmax(w).

    Args:
        mixture_size: number of tensors.
        do_layer_norm: normalize each with the statistics of the complete batch first.
        initial_scalar_parameters: w to start from; zeros by default.
        trainable: False keeps w and gamma as they are.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        given = initial_scalar_parameters
        start = [0.0] * mixture_size if given is None else [float(value) for value in given]
        if len(start) != mixture_size:
            raise ConfigError(
                f"{len(start)} initial_scalar_parameters for a mix of {mixture_size}; give one each"
            )
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        # A parameter of one number for each layer, as AllenNLP saved them; ours is one vector.
        self.scalar_parameters = nn.ParameterList(
            [nn.Parameter(torch.tensor([value]), requires_grad=trainable) for value in start]
        )
        self.gamma = nn.Parameter(torch.tensor([1.0]), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Mix tensors of one shape.

        Layer norm needs (batch, time, dim), and a mask of the tokens that are real, (batch, time).
        """
        if len(tensors) != self.mixture_size:
            raise ConfigError(
                f"{len(tensors)} tensors for a mix of {self.mixture_size}; give all layers"
            )
        values = torch.stack(tuple(tensors))
        if self.do_layer_norm:
            if mask is None:
                raise ConfigError("a mix with do_layer_norm needs the mask; pass it")
            values = normalise(values, mask, "batch")
        return mix(values, torch.cat(list(self.scalar_parameters)), self.gamma)


class _Projected(nn.Module):
    """What may be followed by a linear layer."""

    def _project(self, dim: int, projection_dim: int | None) -> None:
        self._projection = nn.Linear(dim, projection_dim) if projection_dim else None
        self.output_dim = projection_dim or dim

    def _projected(self, vectors: Tensor) -> Tensor:
        return vectors if self._projection is None else self._projection(vectors)

    def get_output_dim(self) -> int:
        """Size of a vector."""
        return self.output_dim


class ElmoTokenEmbedder(_Projected):
    """One mix of a biLM's layers, of the original model by default; arguments as in `Elmo`.

    `projection_dim` is the size to project the vectors to.
    """

    def __init__(
        self,
        options_file: FileName = DEFAULT_OPTIONS_FILE,
        weight_file: FileName = DEFAULT_WEIGHT_FILE,
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
            requires_grad,
            do_layer_norm,
            dropout,
            vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
        )
        self._project(self._elmo.get_output_dim(), projection_dim)

    def forward(self, elmo_tokens: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        """The vectors of character ids (..., time, 50), (..., time, dim)."""
        return self._projected(self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0])


class ElmoTokenEmbedderMultiLang(_Projected):
    """One ELMo for each language, each followed by a fixed matrix that aligns it (AllenNLP 0.9).

    The arguments that are not listed are those of `ElmoTokenEmbedder`.

    Args:
        options_files: options.json by language.
        weight_files: HDF5 weights by language.
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
        if unknown := set(aligning_files or {}) - set(weight_files):
            raise ConfigError(
                f"aligning_files has {sorted(unknown)[0]!r}, for which there is no model"
            )
        dims: dict[int, str] = {}
        for language in weight_files:
            elmo = Elmo(
                options_files[language],
                weight_files[language],
                1,
                requires_grad,
                do_layer_norm,
                dropout,
                vocab_to_cache,
                scalar_mix_parameters=scalar_mix_parameters,
            )
            dim = elmo.get_output_dim()
            dims[dim] = language
            # AllenNLP's names, by which trained models are loaded.
            self.add_module(f"elmo_{language}", elmo)
            file = (aligning_files or {}).get(language)
            self.add_module(f"aligning_{language}", _aligning(file, dim))
        if len(dims) > 1:
            raise ConfigError(f"vectors of different sizes, {dims}; use models of one size")
        self._languages = tuple(weight_files)
        self._project(dim, projection_dim)

    def forward(self, inputs: Tensor, lang: str, word_inputs: Tensor | None = None) -> Tensor:
        """The aligned vectors of character ids (..., time, 50) of a language."""
        if lang not in self._languages:
            raise ConfigError(f"lang={lang!r}; use one of {', '.join(self._languages)}")
        elmo: Elmo = getattr(self, f"elmo_{lang}")
        aligning: nn.Linear = getattr(self, f"aligning_{lang}")
        return self._projected(aligning(elmo(inputs, word_inputs)["elmo_representations"][0]))


def _aligning(file: FileName | None, dim: int) -> nn.Linear:
    """A layer that multiplies by a matrix, which does not learn; without a file by identity."""
    matrix = torch.eye(dim)
    if file:
        path = cached_path(file)
        with files_source({path.name: path}) as source:
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

"""The shape of a biLM: what a checkpoint must hold and what a module is built from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from elmore.base.messages import shown
from elmore.errors import ConfigError
from elmore.limits import LIMITS

Activation = Literal["relu", "tanh"]
# How the weights of a model are stored, and computed with on the CPU.
Precision = Literal["float32", "float16", "int8"]
# The same, and what only GPUs compute in.
ComputePrecision = Literal["float32", "float16", "int8", "bfloat16"]
# Of float32, in which clips are computed.
_LARGEST = 3.4e38


@dataclass(frozen=True, kw_only=True)
class TokenEncoderConfig:
    """How a token becomes one vector that does not depend on its context.

    Characters (a convolution over character embeddings), a word table, or both side by side.

    Attributes:
        n_characters: rows of the character table; 0 for none.
        char_dim: size of a character embedding.
        max_chars: columns of a word, markers included.
        filters: (width, count) of each convolution, in the order of their outputs.
        activation: what follows the maximum over positions.
        n_highway: number of highway layers after the convolutions.
        n_words: rows of the word table; 0 for none.
        word_dim: size of a word embedding.
        projected: whether a linear layer maps the features to the biLM's dimension.
    """

    n_characters: int = 0
    char_dim: int = 0
    max_chars: int = 50
    filters: tuple[tuple[int, int], ...] = ()
    activation: Activation = "relu"
    n_highway: int = 0
    n_words: int = 0
    word_dim: int = 0
    projected: bool = True

    def __post_init__(self) -> None:
        if self.activation not in get_args(Activation):
            raise ConfigError(
                f"activation={shown(repr(self.activation))} is unknown; use 'relu' or 'tanh'"
            )
        if not self.n_characters and not self.n_words:
            raise ConfigError(
                "a token encoder needs characters or words; set n_characters or n_words"
            )
        _check_count("n_highway", self.n_highway, 0, LIMITS.layers)
        if self.n_characters:
            self._check_characters()
        elif self.filters or self.char_dim or self.n_highway:
            raise ConfigError(
                "filters, char_dim and n_highway belong to characters; set n_characters too"
            )
        if self.n_words:
            _check_count("n_words", self.n_words, 1, LIMITS.softmax_words)
            _check_count("word_dim", self.word_dim, 1, LIMITS.projection)
        elif self.word_dim:
            raise ConfigError(f"word_dim={self.word_dim} needs a word table; set n_words too")

    def _check_characters(self) -> None:
        _check_count("n_characters", self.n_characters, 1, LIMITS.character_rows)
        _check_count("char_dim", self.char_dim, 1, LIMITS.projection)
        _check_count("max_chars", self.max_chars, LIMITS.min_chars, LIMITS.max_chars)
        if not 1 <= len(self.filters) <= LIMITS.filters:
            raise ConfigError(
                f"{len(self.filters)} filters, allowed are 1..{LIMITS.filters}; "
                "list them as [[width, count], ...]"
            )
        for width, count in self.filters:
            _check_count("filter width", width, 1, self.max_chars)
            _check_count("filter count", count, 1, LIMITS.channels)

    @property
    def n_filters(self) -> int:
        """Number of features that the convolutions give together."""
        return sum(count for _, count in self.filters)

    @property
    def n_features(self) -> int:
        """Size of the vector before the projection: word part first, then characters."""
        return self.word_dim + self.n_filters


@dataclass(frozen=True, kw_only=True)
class LstmConfig:
    """The recurrent part; both directions have the same shape and separate weights.

    Attributes:
        dim: cells of a layer.
        projection_dim: size of a layer's output; if it equals `dim`, there is no projection matrix.
        n_layers: number of layers.
        cell_clip: bound of the cell state, None for no clipping.
        proj_clip: bound of the projected output, None for no clipping. Without a projection it
            has no effect (as in bilm-tf).
        skip_connections: whether layers from the second on add their input to their output.
        bidirectional: False for a forward language model alone.
        mixed: whether a layer reads both directions of the layer below, as in ELMoForManyLangs'
            `lstm` encoder. It has no clips and no skip connections, one projection for both
            directions after the last layer, and that one layer of output.
    """

    dim: int
    projection_dim: int
    n_layers: int = 2
    cell_clip: float | None = 3.0
    proj_clip: float | None = 3.0
    skip_connections: bool = True
    bidirectional: bool = True
    mixed: bool = False

    def __post_init__(self) -> None:
        _check_count("lstm dim", self.dim, 1, LIMITS.lstm_units)
        _check_count("projection_dim", self.projection_dim, 1, LIMITS.projection)
        _check_count("n_layers", self.n_layers, 1, LIMITS.layers)
        if self.mixed:
            if self.cell_clip is not None or self.proj_clip is not None or self.skip_connections:
                raise ConfigError("a mixed LSTM has neither clips nor skip connections; unset them")
            if not self.bidirectional:
                raise ConfigError("a mixed LSTM has two directions; set bidirectional")
        elif self.projection_dim > self.dim:
            raise ConfigError(
                f"projection_dim={self.projection_dim} is larger than dim={self.dim}; "
                "a projection makes the output smaller, use projection_dim <= dim"
            )
        for name in ("cell_clip", "proj_clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= _LARGEST:
                raise ConfigError(f"{name}={value!r} must be a positive number; use null for none")

    @property
    def projected(self) -> bool:
        """Whether a projection matrix exists."""
        return self.mixed or self.projection_dim != self.dim

    def input_dim(self, layer: int) -> int:
        """Size of what a layer reads."""
        return 2 * self.dim if self.mixed and layer else self.projection_dim

    @property
    def state_dim(self) -> int:
        """Size of what a layer carries from step to step."""
        return self.dim if self.mixed else self.projection_dim


@dataclass(frozen=True, kw_only=True)
class BiLmConfig:
    """The complete biLM: a token encoder and the LSTMs over it."""

    tokens: TokenEncoderConfig
    lstm: LstmConfig

    def __post_init__(self) -> None:
        if not self.tokens.projected and self.tokens.n_features != self.lstm.projection_dim:
            raise ConfigError(
                f"the token encoder gives {self.tokens.n_features} features without a projection, "
                f"the LSTM takes {self.lstm.projection_dim}; make them equal or set projected"
            )

    @property
    def directions(self) -> tuple[str, ...]:
        """Names of the directions, in the order of their halves of a vector."""
        return ("forward", "backward") if self.lstm.bidirectional else ("forward",)

    @property
    def dim(self) -> int:
        """Size of a token's vector in every layer."""
        return len(self.directions) * self.lstm.projection_dim

    @property
    def n_layers(self) -> int:
        """Number of layers that a token has, the token layer included (L + 1).

        A mixed LSTM gives its last layer alone.
        """
        return 1 if self.lstm.mixed else self.lstm.n_layers + 1


def weight_shapes(config: BiLmConfig) -> dict[str, tuple[int, ...]]:
    """List the canonical names and shapes of all weights of a biLM.

    Matrices are stored (out, in), gates in the order input, forget, candidate, output; the
    forget bias of 1 is added when the network runs and is in no file.
    """
    tokens, lstm = config.tokens, config.lstm
    shapes: dict[str, tuple[int, ...]] = {}
    if tokens.n_words:
        shapes["tokens.words"] = (tokens.n_words, tokens.word_dim)
    if tokens.n_characters:
        shapes["tokens.characters"] = (tokens.n_characters, tokens.char_dim)
        for i, (width, count) in enumerate(tokens.filters):
            shapes[f"tokens.convolutions.{i}.weight"] = (count, tokens.char_dim, width)
            shapes[f"tokens.convolutions.{i}.bias"] = (count,)
        for k in range(tokens.n_highway):
            shapes[f"tokens.highways.{k}.weight"] = (2 * tokens.n_filters, tokens.n_filters)
            shapes[f"tokens.highways.{k}.bias"] = (2 * tokens.n_filters,)
    if tokens.projected:
        shapes["tokens.projection.weight"] = (lstm.projection_dim, tokens.n_features)
        shapes["tokens.projection.bias"] = (lstm.projection_dim,)
    for direction in config.directions:
        for k in range(lstm.n_layers):
            prefix = f"{direction}_layers.{k}"
            shapes[f"{prefix}.input_weight"] = (4 * lstm.dim, lstm.input_dim(k))
            shapes[f"{prefix}.state_weight"] = (4 * lstm.dim, lstm.state_dim)
            shapes[f"{prefix}.bias"] = (4 * lstm.dim,)
            if lstm.projected and not lstm.mixed:
                shapes[f"{prefix}.projection"] = (lstm.projection_dim, lstm.dim)
    if lstm.mixed:
        shapes["projection.weight"] = (lstm.projection_dim, lstm.dim)
        shapes["projection.bias"] = (lstm.projection_dim,)
    return shapes


def count_parameters(config: BiLmConfig) -> int:
    """Count the numbers in all weights of a biLM."""
    return sum(math.prod(shape) for shape in weight_shapes(config).values())


def _check_count(name: str, value: int, low: int, high: int) -> None:
    # True is an int in Python.
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        found = shown(repr(value))
        raise ConfigError(f"{name}={found} is out of range; use a whole number {low}..{high}")

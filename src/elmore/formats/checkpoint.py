"""`Checkpoint`: a model as values, between the files of any format and the code that runs it."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import shown
from elmore.compute.matrix import Stored, dequantize, quantize
from elmore.config import BiLmConfig, Precision, count_parameters, weight_shapes
from elmore.errors import ConfigError, FormatError
from elmore.options import StoredType
from elmore.text.characters import Alphabet
from elmore.text.segmenter import Tokenizer, is_convention, tokenizer_name
from elmore.text.tokenizer import CONVENTIONS, Convention
from elmore.text.vocabulary import Vocabulary

# Key in `Checkpoint.notes`: what the precision of the weights costs.
CERTIFICATE = "certificate"


class Softmax(NamedTuple):
    """The output layer of the language model, shared by both directions.

    Attributes:
        weight: (n_words, projection_dim), one row per word of the vocabulary, in float32 or in
            the type in which it is stored.
        bias: one number per row.
        scales: of rows that are stored in int8, (n_words,); else None.
    """

    weight: NDArray[Any]
    bias: NDArray[np.float32]
    scales: NDArray[np.float32] | None = None

    @property
    def n_words(self) -> int:
        """Number of words."""
        return len(self.weight)

    @property
    def stored(self) -> Stored:
        """The rows as they are stored."""
        return Stored(self.weight, self.scales)

    def floats(self) -> NDArray[np.float32]:
        """The rows in float32, (n_words, projection_dim)."""
        return dequantize(self.stored)


@dataclass(frozen=True)
class Mix:
    """A trained mix of layers: weights before the softmax, and the scale."""

    weights: tuple[float, ...]
    gamma: float


class StartState(NamedTuple):
    """The LSTM state that every sentence starts from.

    Attributes:
        hidden: (directions, layers, projection_dim).
        cell: (directions, layers, dim).
    """

    hidden: NDArray[np.float32]
    cell: NDArray[np.float32]


class LazyWeights(Mapping[str, NDArray[np.float32]]):
    """Weights that are read on request, each by a function of its own.

    One weight is read at a time: readers share a stream and what they read last, while a large
    model is packed in several threads.
    """

    def __init__(self, readers: Mapping[str, Callable[[], NDArray[np.float32]]]) -> None:
        self._readers = dict(readers)
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        with self._lock:
            return self._readers[name]()

    def __contains__(self, name: object) -> bool:  # the inherited one would read the array
        return name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


class Whitening(NamedTuple):
    """What `pool="sif"` does to token-layer vectors of one direction: (v - mean) @ matrix.

    Attributes:
        mean: (dim,).
        matrix: (dim, dim).
    """

    mean: NDArray[np.float32]
    matrix: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, repr=False)
class Checkpoint:
    """A model as values, independent of torch and of any file format.

    Attributes:
        config: the shape of the biLM.
        weights: float32 arrays under the names and shapes of `weight_shapes(config)`.
        alphabet: how tokens become characters, or None if the model reads only words.
        vocabulary: words of the softmax and of the word table, if the model has them.
        softmax: output layer of the language model, if known.
        mixes: trained mixes of layers that came with the model.
        start_state: the state after the burn-in text, if it was stored.
        whitening: for sentence vectors, if it was stored; else it is computed when needed.
        tokenizer: the tokenization that the model was trained on, or what comes closest.
        notes: further facts for the model's card; JSON values. "tokenizer" says why raw text may
            be split in another way than the training text was; without it, `tokenizer` is exact.
        origin: where it was read from, for messages.
        precision: how the weights are stored.
        stored: one function per weight that is not stored as float32; it reads the stored numbers.
        stored_types: the types of the arrays in the file, as numpy calls them.
    """

    config: BiLmConfig
    weights: Mapping[str, NDArray[np.float32]]
    alphabet: Alphabet | None
    vocabulary: Vocabulary | None = None
    softmax: Softmax | None = None
    mixes: tuple[Mix, ...] = ()
    start_state: StartState | None = None
    whitening: Whitening | None = None
    tokenizer: Convention = "ptb"
    notes: Mapping[str, Any] = field(default_factory=dict)
    origin: str = "memory"
    precision: Precision = "float32"
    stored: Mapping[str, Callable[[], Stored]] = field(default_factory=dict)
    stored_types: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        tokens = self.config.tokens
        # Names only: reading the arrays here would load every model completely.
        missing = [name for name in weight_shapes(self.config) if name not in self.weights]
        if missing:
            raise FormatError(f"{self.origin} has no weight {missing[0]}; get another copy")
        if tokens.n_characters:
            if self.alphabet is None:
                raise FormatError(
                    f"{self.origin} reads characters but has no alphabet; get another copy"
                )
            if self.alphabet.n_characters != tokens.n_characters:
                raise FormatError(
                    f"{self.origin} has {tokens.n_characters} character rows but its alphabet has "
                    f"{self.alphabet.n_characters} characters; its files do not belong together"
                )
            if self.alphabet.max_chars != tokens.max_chars:
                raise FormatError(
                    f"{self.origin} reads {tokens.max_chars} characters of a token but its "
                    f"alphabet gives {self.alphabet.max_chars}; its files do not belong together"
                )
        if tokens.n_words:
            self._check_rows("word table", tokens.n_words)
        if self.softmax is not None:
            self._check_rows("softmax", self.softmax.n_words)

    def __repr__(self) -> str:
        # Not the weights: a model has millions of them.
        softmax = "no softmax" if self.softmax is None else f"{self.softmax.n_words:,} words"
        size = f"{count_parameters(self.config):,} parameters, {self.precision}"
        return f"<Checkpoint {self.origin}: {size}, {softmax}>"

    def _check_rows(self, what: str, rows: int) -> None:
        if self.vocabulary is None:
            raise FormatError(
                f"{self.origin} has a {what} of {rows} words but no vocabulary; put vocab.txt "
                "into its folder or pass (options, weights, vocabulary)"
            )
        if len(self.vocabulary) != rows:
            raise FormatError(
                f"{self.origin} has a {what} of {rows} words but a vocabulary of "
                f"{len(self.vocabulary)}; pass the vocabulary that it was trained with"
            )

    def with_weights(self, weights: Mapping[str, NDArray[np.float32]]) -> Checkpoint:
        """A model of the same shape with other weights, and nothing left of the old ones."""
        notes = {name: note for name, note in self.notes.items() if name != CERTIFICATE}
        return dataclasses.replace(
            self,
            weights=weights,
            precision="float32",
            stored={},
            start_state=None,
            whitening=None,
            notes=notes,
        )

    def with_tokenizer(self, tokenizer: Tokenizer | None) -> Checkpoint:
        """The model with the tokenizer that a user has chosen, as far as it can be stored.

        A convention is stored. A function is not, because loading a model never runs code that
        the model names: the notes keep its name, and later users are warned.
        """
        if tokenizer is None:
            return self
        notes = {name: note for name, note in self.notes.items() if name != "tokenizer"}
        if is_convention(tokenizer):
            return dataclasses.replace(self, tokenizer=tokenizer, notes=notes)
        notes["tokenizer"] = f"its raw text was split by {tokenizer_name(tokenizer)}"
        return dataclasses.replace(self, notes=notes)

    def warn_of_tokenizer(self) -> None:
        """Warn that raw text may be split in another way than the training text was."""
        if note := self.notes.get("tokenizer"):
            warnings.warn(
                f"{shown(self.origin)}: {shown(note, 160)}; raw text is split as "
                f"'{self.tokenizer}'. Choose with tokenizer= or --tokenizer "
                f"({', '.join(CONVENTIONS)}, or your own function), or pass lists of tokens",
                stacklevel=3,
            )

    def numbers(self, name: str, precision: Precision) -> Stored:
        """Read one weight in a precision; numbers stored in that precision are not converted."""
        # What was stored as int8 must not go through float32: quantizing again could
        # round differently.
        found = self.stored[name]() if precision == self.precision and name in self.stored else None
        if found is None or found.values.dtype != precision:
            found = as_precision(name, self.weights[name], precision)
        self._check_shape(name, found.values.shape, weight_shapes(self.config)[name])
        return found

    def checked_weights(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Read all weights one by one, and compare their shapes with the config."""
        for name, shape in weight_shapes(self.config).items():
            array = self.weights[name]
            self._check_shape(name, array.shape, shape)
            yield name, array

    def _check_shape(self, name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
        if found != wanted:
            raise FormatError(
                f"{self.origin}: {name} has shape {found}, the config asks for {wanted}; "
                "its files do not belong together"
            )


# The large matrices. With int8 the rest (characters, filters, biases) is stored in float16.
_MATRICES = ("input_weight", "state_weight", "projection", "projection.weight")


def is_matrix(name: str) -> bool:
    """Whether a weight is one of the large matrices, which int8 applies to."""
    # Without stack and number: "input_weight" of an LSTM layer, "0.weight" of a highway.
    last = name.split(".", 2)[-1]
    return name in ("tokens.projection.weight", "softmax.weight") or (
        last in _MATRICES if "_layers." in name else "highways." in name and last.endswith("weight")
    )


def as_precision(name: str, weight: NDArray[np.float32], precision: Precision) -> Stored:
    """Convert a finite weight: "int8" rounds the large matrices, and the rest to float16."""
    if precision == "int8" and is_matrix(name):
        return quantize(weight)
    return Stored(as_stored(weight, "float16" if precision == "int8" else precision, what=name))


def as_stored(values: NDArray[np.float32], dtype: StoredType, *, what: str) -> NDArray[Any]:
    """Convert finite values to the type of a file.

    Raises:
        ConfigError: a value is too large for float16.
    """
    if dtype == "float32":
        return np.ascontiguousarray(values, np.float32)
    largest = float(np.abs(values).max(initial=0))
    if largest > float(np.finfo(np.float16).max):
        raise ConfigError(
            f"{what} has the value {largest:.3g}, too large for float16; store float32"
        )
    return np.ascontiguousarray(values, np.float16)

"""Everything that shapes a training run, in one value; recipes are TOML files.

The defaults are the recipe `laptop`; a file states what differs from them. The comment of each key
is part of it, and `recipe_text` prints all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from elmore.base.json import BelowOne, Count, Fraction, NonNegative, Positive, Whole, from_json
from elmore.config import Activation, BiLmConfig, LstmConfig, TokenEncoderConfig
from elmore.errors import ConfigError
from elmore.text.characters import ByteAlphabet
from elmore.training.bilm.recipe_files import (
    MISSING,
    key,
    override,
    read_recipe,
    shipped_text,
)

__all__ = [
    "DataRecipe",
    "Decay",
    "LossRecipe",
    "ModelRecipe",
    "OptimizerRecipe",
    "Recipe",
    "RunRecipe",
    "ScheduleRecipe",
]

Regime = Literal["sentences", "stream"]
LossKind = Literal["sampled", "full", "adaptive"]
SharedNegatives = Literal["directions", "none"]
OptimizerName = Literal["adagrad", "adam", "muon"]
TokenInput = Literal["characters", "words", "model"]
AlphabetName = Literal["bytes", "characters"]
Decay = Literal["constant", "cosine", "linear"]


@dataclass(frozen=True, kw_only=True)
class ModelRecipe:
    """The shape of the biLM."""

    tokens: TokenInput = key(
        "characters",
        'input: "characters" of words, or complete "words" from a table; "model": that of a start',
    )
    char_dim: int = key(16, "size of a character's vector")
    max_chars: int = key(50, "bytes (or characters) of a word that are read, two markers included")
    alphabet: AlphabetName = key(
        "bytes", 'or "characters" of Unicode, for scripts with several bytes per letter'
    )
    filters: tuple[tuple[int, int], ...] = key(
        ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256)),
        "[width, number] of the character convolutions; fewer are faster",
    )
    activation: Activation = key("relu", 'after the convolutions: "relu" or "tanh"')
    n_highway: int = key(1, "highway layers after the convolutions")
    dim: int = key(512, "LSTM cells per direction; the main size of the model")
    projection_dim: int = key(128, "LSTM output per direction; a vector has twice as many numbers")
    n_layers: int = key(2, "LSTM layers; the published models have 2")
    cell_clip: float | None = key(3.0, "bound of the cell state; keeps long texts stable")
    proj_clip: float | None = key(3.0, "bound of the projected output")
    skip_connections: bool = key(True, "upper layers add their input to their output")
    bidirectional: bool = key(True, "false trains the forward direction only")
    tied_softmax: bool = key(False, 'one table for input and softmax; only with tokens = "words"')
    vectors: str | None = key(
        None,
        'start the word table from word vectors; only with tokens = "words"',
        example="glove.txt",
    )

    @classmethod
    def from_config(cls, config: BiLmConfig, *, alphabet: AlphabetName = "bytes") -> ModelRecipe:
        """The section that describes an existing model.

        Args:
            config: the model's.
            alphabet: what it reads.

        Raises:
            ConfigError: the model has a token layer that cannot be trained here.
        """
        tokens, lstm = config.tokens, config.lstm
        if lstm.mixed:
            raise ConfigError(
                "this model's layers read both directions, so it predicts no words; only models "
                "with separate directions can be trained"
            )
        reads: TokenInput = "characters"
        if tokens.n_words:
            reads = "model" if tokens.n_characters or tokens.projected else "words"
        shape = cls(
            tokens=reads,
            char_dim=tokens.char_dim,
            max_chars=tokens.max_chars,
            filters=tokens.filters,
            activation=tokens.activation,
            n_highway=tokens.n_highway,
            dim=lstm.dim,
            projection_dim=lstm.projection_dim,
            n_layers=lstm.n_layers,
            cell_clip=lstm.cell_clip,
            proj_clip=lstm.proj_clip,
            skip_connections=lstm.skip_connections,
            bidirectional=lstm.bidirectional,
            tied_softmax=False,
            vectors=None,
            alphabet=alphabet,
        )
        # Not every model can be described by these keys: what they would build must be this one.
        if reads == "characters" and shape.config(0, tokens.n_characters) != config:
            return dataclasses.replace(shape, tokens="model")
        return shape

    def config(self, n_words: int, n_characters: int = ByteAlphabet.n_characters) -> BiLmConfig:
        """Build the config of the biLM.

        Args:
            n_words: size of the vocabulary, used if words go in.
            n_characters: size of the alphabet, used if characters go in.
        """
        if self.tokens == "model":
            raise ConfigError(
                "model.tokens='model' needs a model to start from; use `elmore fine-tune`"
            )
        if self.tied_softmax and self.tokens == "characters":
            raise ConfigError(
                "model.tied_softmax=true needs model.tokens='words'; characters have no word table"
            )
        if self.tokens == "words":
            tokens = TokenEncoderConfig(
                n_words=n_words, word_dim=self.projection_dim, projected=False
            )
        else:
            n_filters = sum(count for _, count in self.filters)
            tokens = TokenEncoderConfig(
                n_characters=n_characters,
                char_dim=self.char_dim,
                max_chars=self.max_chars,
                filters=self.filters,
                activation=self.activation,
                n_highway=self.n_highway,
                # As in bilm-tf: a projection only where the sizes differ.
                projected=n_filters != self.projection_dim,
            )
        lstm = LstmConfig(
            dim=self.dim,
            projection_dim=self.projection_dim,
            n_layers=self.n_layers,
            cell_clip=self.cell_clip,
            proj_clip=self.proj_clip,
            skip_connections=self.skip_connections,
            bidirectional=self.bidirectional,
        )
        return BiLmConfig(tokens=tokens, lstm=lstm)


@dataclass(frozen=True, kw_only=True)
class DataRecipe:
    """How text becomes batches."""

    regime: Regime = key(
        "sentences", '"sentences" from zero state, or bilm-tf\'s "stream" with carried state'
    )
    batch_tokens: Count = key(
        1024, "tokens per batch of sentences; more needs more memory and a higher lr"
    )
    max_length: Count = key(80, "longer sentences are cut into parts of this many tokens")
    pool_sentences: Count = key(
        16_384, "sentences sorted by length together; more means evener batches"
    )
    batch_rows: Count = key(32, "rows of a batch of running text (stream and long windows)")
    unroll: Count = key(32, "steps of a batch of running text")
    long_share: Fraction = key(
        0.25, "share of tokens read as running text; 0 risks divergence on paragraphs"
    )
    long_tokens: Count = key(2048, "longest running text; what the model should be able to read")


@dataclass(frozen=True, kw_only=True)
class LossRecipe:
    """The objective."""

    kind: LossKind = key(
        "sampled", '"sampled" (fast), "full" (small vocabularies) or "adaptive" softmax'
    )
    negatives: Count = key(
        1024, "words each target is compared with; more is slower and closer to full"
    )
    cutoffs: tuple[int, ...] = key(
        (4000, 20_000), 'first word of each cluster; only for kind = "adaptive"'
    )
    shared: SharedNegatives = key(
        "directions", 'negatives drawn once for both "directions", or "none": for each'
    )
    times_unroll: bool = key(False, "multiply the loss by unroll, as bilm-tf does; stream only")
    unigram_bias: bool = key(True, "start the softmax bias from word frequencies")
    dropout: BelowOne = key(
        0.0, "on LSTM inputs and the top output; raise it when held-out loss rises"
    )


@dataclass(frozen=True, kw_only=True)
class OptimizerRecipe:
    """How gradients become steps."""

    name: OptimizerName = key(
        "muon", '"muon" (Adam for all but the LSTM matrices), "adam", or bilm-tf\'s "adagrad"'
    )
    lr: Positive = key(
        0.008, "highest learning rate, each optimizer has its own; halve it if the loss becomes NaN"
    )
    accumulator: Positive = key(1.0, "where Adagrad's sums of squares start")
    beta1: BelowOne = key(0.9, "Adam: decay of the mean gradient")
    beta2: BelowOne = key(0.999, "Adam: decay of the mean square")
    epsilon: Positive = key(1e-8, "Adam: guard of the division")
    weight_decay: NonNegative = key(0.0, "Adam and Muon, matrices only")
    clip_norm: Positive | None = key(1.0, "largest norm of all gradients together")
    accumulate: Count = key(1, "batches per step; raise it for larger batches in the same memory")
    muon_lr: Positive = key(
        0.02, "Muon: highest rate of the LSTM matrices, the spectral norm of a step"
    )
    muon_momentum: BelowOne = key(0.95, "Muon: decay of the mean gradient")


@dataclass(frozen=True, kw_only=True)
class ScheduleRecipe:
    """The learning rate over the run, in tokens."""

    epochs: Positive = key(2.0, "passes over the data, unless tokens is set; more for little text")
    tokens: Count | None = key(
        None, "length of the run in tokens; wins over epochs", example=10_000_000
    )
    warmup_tokens: Whole = key(
        100_000, "the rate rises over these; lengthen it if the start diverges"
    )
    decay: Decay = key("linear", '"linear", "cosine" or "constant"')
    decay_share: Fraction = key(0.2, "last share of the run over which the rate falls")
    floor: Fraction = key(0.02, "share of the rate left at the end")
    frozen_tokens: Whole = key(0, "only the softmax learns for this long; for fine-tuning")


@dataclass(frozen=True, kw_only=True)
class RunRecipe:
    """What happens around the steps."""

    log_steps: Count = key(20, "steps between lines of the log")
    save_minutes: NonNegative = key(5.0, "minutes between states to resume from")
    evaluate_tokens: Whole = key(
        2_000_000, "training tokens between evaluations; 0 for the end only"
    )
    heldout_tokens: Count = key(
        20_000, "held-out tokens per evaluation; more is slower and less noisy"
    )
    patience: Whole = key(0, "end after this many evaluations without a better one; 0 for never")
    autocast: bool = key(
        False, "matrix products in bfloat16; true where the hardware is fast at it"
    )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a training run."""

    name: str = "own"
    model: ModelRecipe = ModelRecipe()
    data: DataRecipe = DataRecipe()
    loss: LossRecipe = LossRecipe()
    optimizer: OptimizerRecipe = OptimizerRecipe()
    schedule: ScheduleRecipe = ScheduleRecipe()
    run: RunRecipe = RunRecipe()

    @classmethod
    def load(cls, source: str | Path, overrides: Mapping[str, str] | None = None) -> Recipe:
        """Read a shipped recipe by name or a TOML file by path.

        Args:
            source: name or path.
            overrides: "section.key" to a value in TOML's notation, as `--set` gives them.
        """
        data = read_recipe(source, overrides, named=shipped_text)
        return cls.from_json(data, what=str(source))

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, what: str) -> Recipe:
        """Build a recipe from parsed TOML or JSON; missing keys have their defaults."""
        return from_json(cls, data, what=what, fix=MISSING)

    def changed(self, settings: Mapping[str, str]) -> Recipe:
        """The same recipe with other values of some keys, as in `load`."""
        data = self.to_json()
        override(data, settings)
        return Recipe.from_json(data, what=self.name)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is the inverse."""
        return dataclasses.asdict(self)

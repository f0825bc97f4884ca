"""Everything that shapes a training run, in one value; recipes are TOML files."""

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
    override,
    read_recipe,
    recipe_text,
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
    """The shape of the biLM.

    Attributes:
        tokens: what goes in: "characters" or complete "words"; "model" for what the model reads
            that a run starts from, such as both (ELMoForManyLangs).
        max_chars: bytes or characters of a word that are read, with its two markers.
        vectors: file of word vectors to start a word table from, or None.
        alphabet: what `tokens = "characters"` reads: "bytes" of UTF-8, as the published models, or
            Unicode "characters", those of the training text. Bytes cut words of many scripts
            short: a Thai or Hindi letter has three.
    """

    tokens: TokenInput
    char_dim: int
    max_chars: int
    filters: tuple[tuple[int, int], ...]
    activation: Activation
    n_highway: int
    dim: int
    projection_dim: int
    n_layers: int
    cell_clip: float | None = None
    proj_clip: float | None = None
    skip_connections: bool
    bidirectional: bool
    tied_softmax: bool
    vectors: str | None = None
    alphabet: AlphabetName = "bytes"

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
    """How text becomes batches.

    Attributes:
        regime: "sentences" starts each sentence from zeros; "stream" is bilm-tf's packed windows
            with carried state.
        batch_tokens: token budget of a batch of sentences.
        max_length: longer sentences are cut into pieces of this many tokens.
        pool_sentences: sentences that are shuffled and sorted by length together.
        batch_rows: rows of a stream batch, and of a batch of long windows.
        unroll: steps of a stream batch, and of a batch of long windows.
        long_share: with regime "sentences", the share of tokens that is read as long windows:
            running text across sentence borders, `unroll` steps at a time with the state carried
            on. A model that only ever sees sentences from zeros may diverge on paragraphs.
        long_tokens: length of the longest window.
    """

    regime: Regime
    batch_tokens: Count
    max_length: Count
    pool_sentences: Count
    batch_rows: Count
    unroll: Count
    long_share: Fraction = 0.0
    long_tokens: Count = 2048


@dataclass(frozen=True, kw_only=True)
class LossRecipe:
    """The objective.

    Attributes:
        kind: "sampled", "full" or "adaptive" softmax.
        negatives: words that each target is compared with.
        cutoffs: where the clusters of the adaptive softmax begin.
        shared: "directions": one draw for both directions; "none": one draw for each.
        times_unroll: multiply the loss by the steps of a stream batch, as bilm-tf does.
        unigram_bias: start the softmax bias from the log frequency of the words.
        dropout: on LSTM inputs and on the top output.
    """

    kind: LossKind
    negatives: Count
    cutoffs: tuple[int, ...]
    shared: SharedNegatives
    times_unroll: bool
    unigram_bias: bool
    dropout: BelowOne


@dataclass(frozen=True, kw_only=True)
class OptimizerRecipe:
    """How gradients become steps.

    Attributes:
        name: "muon" orthogonalises the momentum of the LSTMs' matrices and is Adam for all other
            weights.
        lr: the highest learning rate.
        accumulator: what Adagrad's sums of squares start from.
        beta1: decay of Adam's mean of gradients.
        beta2: decay of Adam's mean of squares.
        epsilon: guard of Adam's division.
        weight_decay: of matrices, times the learning rate; Adam and Muon.
        clip_norm: largest norm of all gradients together, or None.
        accumulate: batches of one step.
        muon_lr: the highest learning rate of the LSTMs' matrices with "muon": the spectral norm of
            one step. It rises and decays as `lr` does.
        muon_momentum: decay of Muon's mean of gradients.
    """

    name: OptimizerName
    lr: Positive
    accumulator: Positive
    beta1: BelowOne
    beta2: BelowOne
    epsilon: Positive
    weight_decay: NonNegative
    clip_norm: Positive | None = None
    accumulate: Count
    muon_lr: Positive = 0.02
    muon_momentum: BelowOne = 0.95


@dataclass(frozen=True, kw_only=True)
class ScheduleRecipe:
    """The learning rate over the run, in tokens.

    Attributes:
        epochs: passes over the data; with `tokens` set, that wins.
        tokens: tokens of the complete run, or None to go by epochs.
        warmup_tokens: tokens of the linear rise.
        decay: "constant", "cosine" or "linear".
        decay_share: the last share of the run over which the rate falls (1: from the start).
        floor: share of the rate that is left at the end.
        frozen_tokens: at the start only the softmax learns, for this many tokens.
    """

    epochs: Positive
    tokens: Count | None = None
    warmup_tokens: Whole
    decay: Decay
    decay_share: Fraction
    floor: Fraction
    frozen_tokens: Whole


@dataclass(frozen=True, kw_only=True)
class RunRecipe:
    """What happens around the steps.

    Attributes:
        log_steps: steps between lines of the log.
        save_minutes: minutes between saves for a resume.
        evaluate_tokens: training tokens between evaluations; 0 for the end only.
        heldout_tokens: held-out tokens that an evaluation reads.
        autocast: round the factors and results of matrix products to bfloat16, which pays where
            the hardware is fast at it; sums, gates, cells, logits and weights stay in float32.
        patience: end after this many evaluations without a better one; 0 for never.
    """

    log_steps: Count
    save_minutes: NonNegative
    evaluate_tokens: Whole
    heldout_tokens: Count
    patience: Whole
    autocast: bool


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a training run."""

    name: str = "own"
    model: ModelRecipe
    data: DataRecipe
    loss: LossRecipe
    optimizer: OptimizerRecipe
    schedule: ScheduleRecipe
    run: RunRecipe

    @classmethod
    def load(cls, source: str | Path, overrides: Mapping[str, str] | None = None) -> Recipe:
        """Read a shipped recipe by name or a TOML file by path.

        Args:
            source: name or path.
            overrides: "section.key" to a value in TOML's notation, as `--set` gives them.
        """
        data = read_recipe(source, overrides, named=recipe_text)
        return cls.from_json(data, what=str(source))

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, what: str) -> Recipe:
        """Build a recipe from parsed TOML or JSON; unknown and missing keys are errors."""
        return from_json(cls, data, what=what, fix=MISSING)

    def changed(self, settings: Mapping[str, str]) -> Recipe:
        """The same recipe with other values of some keys, as in `load`."""
        data = self.to_json()
        override(data, settings)
        return Recipe.from_json(data, what=self.name)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is the inverse."""
        return dataclasses.asdict(self)

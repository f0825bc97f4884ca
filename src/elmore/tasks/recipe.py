"""Everything that shapes the training of a task, in one value.

Shipped and own recipes are TOML files that state what differs from the defaults here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from elmore.base.json import BelowOne, Count, NonNegative, Positive, Whole, from_json
from elmore.limits import LIMITS
from elmore.training.bilm.recipe import MISSING, read_recipe

# Units of each layer of a network.
LayerSizes = Annotated[tuple[Count, ...], Meta(max_length=LIMITS.layers)]
# With fewer training examples, a tenth of them is too little to choose an epoch by.
FEW = 2000


@dataclass(frozen=True, kw_only=True)
class ElmoRecipe:
    """How ELMo enters (Peters et al. 2018, §3.3)."""

    input: bool = True  # [x; ELMo] below the task model's first RNN
    output: bool = False  # [h; ELMo] above it, with a mix of its own
    # "all" for a learned mix, "top" for the last layer alone, or "each" for all layers side by
    # side, without a mix
    layers: Literal["all", "top", "each"] = "all"
    penalty: NonNegative = 0.001  # the paper's lambda, strength of the pull towards an equal mix
    dropout: BelowOne = 0.0  # on each mixed vector
    layer_norm: Literal["sentence", "batch"] | None = None  # normalise layers before mixing
    trainable: bool = False  # train the biLM too; its layers are then computed in each step


@dataclass(frozen=True, kw_only=True)
class WordsRecipe:
    """The word vectors next to ELMo."""

    # size of vectors that are learned from nothing; 0 for no word vectors at all. Ignored with a
    # file of vectors, which says its own.
    dim: Whole = 100
    trainable: bool = False  # whether vectors from a file learn, too
    unit: bool = False  # scale each vector to length 1
    # rarer training words without a vector in the file are unknown words; 0 to fit it to the size
    # of the data
    min_count: Whole = 2
    most: Whole = 100_000  # words of the file that are kept for texts to come, from its start


@dataclass(frozen=True, kw_only=True)
class CharactersRecipe:
    """The CNN over a word's bytes; no filters for none."""

    dim: Count = 16  # size of a byte's vector
    # (width, number) of each convolution
    filters: Annotated[tuple[tuple[Count, Count], ...], Meta(max_length=LIMITS.filters)] = ()
    max_chars: Count = 20  # bytes of a word that are read
    dropout: BelowOne = 0.0  # on the bytes' vectors


@dataclass(frozen=True, kw_only=True)
class BatchRecipe:
    """How examples become batches."""

    batch_size: Whole = 32  # examples of a batch; 0 to fit it to the size of the data
    max_length: Whole = 0  # longer training examples are left out; 0 for no bound


@dataclass(frozen=True, kw_only=True)
class LearningRecipe:
    """How gradients become steps."""

    name: Literal["adam", "adadelta", "adagrad"] = "adam"
    lr: Positive = 0.001
    beta1: BelowOne = 0.9  # first moment of Adam; rho of Adadelta
    beta2: BelowOne = 0.999  # second moment of Adam
    epsilon: Positive = 1e-8  # guard of the division
    clip_norm: Positive | None = None  # largest norm of all gradients together
    clip_value: Positive | None = None  # largest single gradient
    l2: NonNegative = 0.0  # strength of the pull of all matrices towards 0
    average: BelowOne = 0.0  # decay of a mean of the weights, which evaluations use; 0 for none


@dataclass(frozen=True, kw_only=True)
class PaceRecipe:
    """How long, and how the rate changes."""

    epochs: Whole = 0  # largest number of passes; 0 to fit it to the size of the data
    steps: Count | None = None  # largest number of steps; None for no bound but the epochs
    patience: Whole = 0  # end after this many evaluations without a better score; 0 for never
    # Halve the rate after this many evaluations without a better score; -1 for never.
    halve_patience: Annotated[int, Meta(ge=-1)] = -1
    decay: Positive = 1.0  # multiply the rate by this every `decay_steps`
    decay_steps: Count = 1


@dataclass(frozen=True, kw_only=True)
class LogRecipe:
    """What happens around the steps; evaluations come after each epoch."""

    log_steps: Count = 50
    save_minutes: NonNegative = 2.0


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """All settings of a task's training; `model` is the task's own section."""

    name: str = "own"
    elmo: ElmoRecipe = ElmoRecipe()
    words: WordsRecipe = WordsRecipe()
    characters: CharactersRecipe = CharactersRecipe()
    model: Any
    data: BatchRecipe = BatchRecipe()
    optimizer: LearningRecipe = LearningRecipe()
    schedule: PaceRecipe = PaceRecipe()
    run: LogRecipe = LogRecipe()

    @classmethod
    def load(
        cls, source: str | Path, task: str, model: type, overrides: Mapping[str, str] | None = None
    ) -> TaskRecipe:
        """Read a shipped recipe by its size, or a TOML file by its path.

        Args:
            source: "paper", "laptop", the complete name of a recipe, or a path.
            task: name of the task.
            model: dataclass of the section `model`.
            overrides: "section.key" to a value in TOML's notation, as `--set` gives them.
        """
        return cls.from_json(read_recipe(source, overrides, task), model, what=str(source))

    @classmethod
    def from_json(cls, data: Mapping[str, Any], model: type, *, what: str) -> TaskRecipe:
        """Build a recipe from parsed TOML or JSON; unknown and missing keys are errors."""
        own: Any = from_json(model, data.get("model"), what=what, key="model", fix=MISSING)
        return from_json(cls, {**data, "model": own}, what=what, fix=MISSING)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is the inverse."""
        return dataclasses.asdict(self)

    def fitted(self, n_examples: int) -> TaskRecipe:
        """The recipe with what it leaves open fitted to so many examples.

        Small data needs small batches, or an epoch has hardly a step. Few examples are read 24
        times or more, until there are 240 steps; otherwise the epochs are what about 6,000 steps
        take, and patience ends most runs before. Half of the words of few examples occur once, and
        some of them tell much; in large data they would only make the table large.
        """
        size = self.data.batch_size or min(32, max(4, n_examples // 32))
        least, steps = (24, 240) if n_examples < FEW else (6, 6000)
        epochs = self.schedule.epochs or max(least, steps * size // max(1, n_examples))
        rarest = self.words.min_count or (1 if n_examples < FEW else 2)
        return dataclasses.replace(
            self,
            words=dataclasses.replace(self.words, min_count=rarest),
            data=dataclasses.replace(self.data, batch_size=size),
            schedule=dataclasses.replace(self.schedule, epochs=epochs),
        )

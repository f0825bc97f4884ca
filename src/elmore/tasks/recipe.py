"""Everything that shapes the training of a task, in one value; shipped and own ones are TOML."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from elmore.base.json import from_json
from elmore.base.messages import shown
from elmore.errors import ConfigError
from elmore.limits import LIMITS
from elmore.nn.elmo_layer import LayerNorm
from elmore.training.bilm.recipe_files import (
    MISSING,
    Bound,
    check_bounds,
    is_positive,
    is_share,
    read_recipe,
    task_recipe_names,
    task_recipe_text,
)
from elmore.training.task_trainer import LearningRecipe, PaceRecipe

__all__ = [
    "FEW",
    "CharactersRecipe",
    "DataRecipe",
    "ElmoRecipe",
    "RunRecipe",
    "TaskRecipe",
    "WordsRecipe",
    "within",
]


# With fewer training examples, a tenth of them is too little to choose an epoch by.
FEW = 2000


@dataclass(frozen=True, kw_only=True)
class ElmoRecipe:
    """How ELMo enters (Peters et al. 2018, §3.3).

    Attributes:
        input: [x; ELMo] below the task model's first RNN.
        output: [h; ELMo] above it, with a mix of its own.
        layers: "all" for a learned mix, "top" for the last layer alone, or "each" for all layers
            side by side, without a mix.
        penalty: the paper's lambda, strength of the pull towards an equal mix.
        dropout: on each mixed vector.
        layer_norm: normalise layers before mixing, or None.
        trainable: train the biLM too; its layers are then computed in each step.
    """

    input: bool
    output: bool
    layers: Literal["all", "top", "each"]
    penalty: float
    dropout: float
    layer_norm: LayerNorm | None
    trainable: bool


@dataclass(frozen=True, kw_only=True)
class WordsRecipe:
    """The word vectors beside ELMo.

    Attributes:
        dim: size of vectors that are learned from nothing; 0 for no word vectors at all. Ignored
            with a file of vectors, which says its own.
        trainable: whether vectors from a file learn, too.
        unit: scale each vector to length 1.
        min_count: rarer training words without a vector in the file are unknown words; 0 to fit it
            to the size of the data.
        most: words of the file that are kept for texts to come, from its start.
    """

    dim: int
    trainable: bool
    unit: bool
    min_count: int
    most: int


@dataclass(frozen=True, kw_only=True)
class CharactersRecipe:
    """The CNN over a word's bytes; no filters for none.

    Attributes:
        dim: size of a byte's vector.
        filters: (width, number) of each convolution.
        max_chars: bytes of a word that are read.
        dropout: on the bytes' vectors.
    """

    dim: int
    filters: tuple[tuple[int, int], ...]
    max_chars: int
    dropout: float


@dataclass(frozen=True, kw_only=True)
class DataRecipe:
    """How examples become batches.

    Attributes:
        batch_size: examples of a batch; 0 to fit it to the size of the data.
        max_length: longer training examples are left out; 0 for no bound.
    """

    batch_size: int
    max_length: int


@dataclass(frozen=True, kw_only=True)
class RunRecipe:
    """What happens around the steps; evaluations come after each epoch."""

    log_steps: int
    save_minutes: float


_BOUNDS = (
    Bound(
        "elmo.penalty words.dim words.min_count words.most data.batch_size data.max_length "
        "schedule.epochs schedule.patience run.save_minutes optimizer.l2",
        "0 or more",
        lambda value: value >= 0,
    ),
    Bound(
        "characters.dim characters.max_chars schedule.steps schedule.decay_steps run.log_steps",
        "1 or more",
        lambda value: value >= 1,
    ),
    Bound("schedule.halve_patience", "-1 or more", lambda value: value >= -1),
    Bound(
        "elmo.dropout characters.dropout optimizer.average optimizer.beta1 optimizer.beta2",
        "a share from 0 to below 1",
        is_share,
    ),
    Bound(
        "optimizer.lr optimizer.epsilon optimizer.clip_norm optimizer.clip_value schedule.decay",
        "a positive number",
        is_positive,
    ),
)


def within(least: int, most: int | None = None) -> Any:
    """Declare a whole number of a section `model` that is not simply 1 or more."""
    return dataclasses.field(metadata={"least": least, "most": most})


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """All settings of a task's training; `model` is the task's own section."""

    name: str
    elmo: ElmoRecipe
    words: WordsRecipe
    characters: CharactersRecipe
    model: Any
    data: DataRecipe
    optimizer: LearningRecipe
    schedule: PaceRecipe
    run: RunRecipe

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)
        filters = self.characters.filters
        if len(filters) > LIMITS.filters or any(min(pair) < 1 for pair in filters):
            raise ConfigError(
                f"characters.filters={shown([list(pair) for pair in filters], 80)}; use at most "
                f"{LIMITS.filters} pairs of a width and a number, both 1 or more"
            )
        for field in dataclasses.fields(self.model):
            _check_own(field, getattr(self.model, field.name))

    @classmethod
    def load(
        cls,
        source: str | Path,
        task: str,
        model: type,
        overrides: Mapping[str, str] | None = None,
    ) -> TaskRecipe:
        """Read a shipped recipe by its size, or a TOML file by its path.

        Args:
            source: "paper", "laptop", the complete name of a recipe, or a path.
            task: name of the task.
            model: dataclass of the section `model`.
            overrides: "section.key" to a value in TOML's notation, as `--set` gives them.
        """

        def named(name: str) -> str:
            whole = f"{task}-{name}"
            return task_recipe_text(whole if whole in task_recipe_names() else name)

        data = read_recipe(source, overrides, named=named)
        return cls.from_json(data, model, what=str(source))

    @classmethod
    def from_json(cls, data: Mapping[str, Any], model: type, *, what: str) -> TaskRecipe:
        """Build a recipe from parsed TOML or JSON; unknown and missing keys are errors."""
        own: Any = from_json(model, data.get("model"), what=what, key="model", fix=MISSING)
        return from_json(cls, {"name": "own", **data, "model": own}, what=what, fix=MISSING)

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


def _check_own(field: dataclasses.Field[Any], value: Any) -> None:
    """Check a value of the section `model` by its kind."""
    least, most = field.metadata.get("least", 1), field.metadata.get("most")
    if "dropout" in field.name:
        fits, allowed = 0 <= value < 1, "a share from 0 to below 1"
    elif isinstance(value, float):
        fits, allowed = 0 < value < float("inf"), "a positive number"
    elif isinstance(value, tuple):
        fits = len(value) <= LIMITS.layers and all(n >= 1 for n in value)
        value, allowed = list(value), f"at most {LIMITS.layers} numbers of 1 or more"
    elif type(value) is int:
        fits = least <= value and (most is None or value <= most)
        allowed = f"{least} or more" if most is None else f"{least} to {most}"
    else:
        return  # a switch or a choice
    if not fits:
        raise ConfigError(f"model.{field.name}={shown(repr(value), 80)}; use {allowed}")

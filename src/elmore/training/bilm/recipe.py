"""Everything that shapes a training run, in one value; recipes are TOML files.

The defaults are the recipe `laptop`; a file states what differs from them. The comment of each key
is part of it, and `recipe_text` prints all of them.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elmore.base.json import BelowOne, Count, Fraction, NonNegative, Positive, Whole, from_json
from elmore.config import Activation, BiLmConfig, LstmConfig, TokenEncoderConfig
from elmore.errors import ConfigError
from elmore.text.characters import ByteAlphabet

if TYPE_CHECKING:
    from elmore.corpus.prepared import Prepared

# What to do about a missing key or section of a recipe, for messages.
MISSING = "copy a recipe with `elmore pretrain --show-recipe laptop`"
_FOLDER = Path(__file__).parent / "recipes"
# Only a path: the modules of the tasks need torch, and listing recipes works without it.
TASK_RECIPES = Path(__file__).parents[2] / "tasks" / "recipes"
_COLUMN = 30  # where the comments of a printed recipe start
DEFAULT = "laptop"  # the recipe of a run that names none
# From this many tokens on, the recipe's own passes are enough. With less, the square root: half
# the text is read 1.4 times as often.
_ENOUGH_TOKENS = 10_000_000
_MAX_EPOCHS = 6  # more passes over a small text are learned by heart
_MIN_EVALUATIONS = 20  # so that the best model is found and the curve can be seen
_WARMUP_SHARE = 0.1  # of the run, at most


def key(default: Any, comment: str, *, example: Any = None) -> Any:
    """Declare a key of a recipe; `example` is shown where it has no value."""
    return dataclasses.field(default=default, metadata={"comment": comment, "example": example})


@dataclass(frozen=True, kw_only=True)
class ModelRecipe:
    """The shape of the biLM."""

    tokens: Literal["characters", "words", "model"] = key(
        "characters",
        'input: "characters" of words, or complete "words" from a table; "model": that of a start',
    )
    char_dim: int = key(16, "size of a character's vector")
    max_chars: int = key(50, "bytes (or characters) of a word that are read, two markers included")
    alphabet: Literal["bytes", "characters"] = key(
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

    @classmethod
    def from_config(cls, config: BiLmConfig, alphabet: str = "bytes") -> ModelRecipe:
        """The section that describes an existing model; `alphabet` is what it reads.

        Raises:
            ConfigError: the model has a token layer that cannot be trained here.
        """
        tokens, lstm = config.tokens, config.lstm
        if lstm.mixed:
            raise ConfigError(
                "this model's layers read both directions, so it predicts no words; only models "
                "with separate directions can be trained"
            )
        reads = "characters"
        if tokens.n_words:
            reads = "model" if tokens.n_characters or tokens.projected else "words"
        known = dataclasses.asdict(tokens) | dataclasses.asdict(lstm)
        known |= {"tokens": reads, "alphabet": alphabet}
        own = {field.name for field in dataclasses.fields(cls)}
        shape = cls(**{name: value for name, value in known.items() if name in own})
        # Not every model can be described by these keys: what they would build must be this one.
        if reads == "characters" and shape.config(0, tokens.n_characters) != config:
            return dataclasses.replace(shape, tokens="model")
        return shape

    def config(self, n_words: int, n_characters: int = ByteAlphabet.n_characters) -> BiLmConfig:
        """Build the config of the biLM, which uses one of the sizes of vocabulary and alphabet."""
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
            tokens = TokenEncoderConfig(
                n_characters=n_characters,
                char_dim=self.char_dim,
                max_chars=self.max_chars,
                filters=self.filters,
                activation=self.activation,
                n_highway=self.n_highway,
                # As in bilm-tf: a projection only where the sizes differ.
                projected=sum(count for _, count in self.filters) != self.projection_dim,
            )
        shape = {
            field.name: getattr(self, field.name, False) for field in dataclasses.fields(LstmConfig)
        }
        return BiLmConfig(tokens=tokens, lstm=LstmConfig(**shape))


@dataclass(frozen=True, kw_only=True)
class DataRecipe:
    """How text becomes batches."""

    regime: Literal["sentences", "stream"] = key(
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

    kind: Literal["sampled", "full"] = key(
        "sampled", '"sampled" softmax (fast), or "full" (small vocabularies)'
    )
    negatives: Count = key(
        1024, "words each target is compared with; more is slower and closer to full"
    )
    shared: Literal["directions", "none"] = key(
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

    name: Literal["adagrad", "adam", "muon"] = key(
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
    decay: Literal["constant", "cosine", "linear"] = key(
        "linear", '"linear", "cosine" or "constant"'
    )
    decay_share: Fraction = key(0.2, "last share of the run over which the rate falls")
    floor: Fraction = key(0.02, "share of the rate left at the end")
    frozen_tokens: Whole = key(0, "only the softmax learns for this long; for fine-tuning")
    average: BelowOne = key(
        0.0, "decay per step of a mean of the weights, which is evaluated and saved; 0 for none"
    )


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
        return cls.from_json(read_recipe(source, overrides), what=str(source))

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, what: str) -> Recipe:
        """Build a recipe from parsed TOML or JSON; missing keys have their defaults."""
        return from_json(cls, data, what=what, fix=MISSING)

    def changed(self, settings: Mapping[str, str]) -> Recipe:
        """The same recipe with other values of some keys, as in `load`."""
        data = self.to_json()
        _override(data, settings)
        return Recipe.from_json(data, what=self.name)

    def replaced(self, **sections: dict[str, Any]) -> Recipe:
        """The same recipe with other values of some keys of some sections."""
        parts = {k: dataclasses.replace(getattr(self, k), **keys) for k, keys in sections.items()}
        return dataclasses.replace(self, **parts)

    def pass_tokens(self, prepared: Prepared) -> int:
        """Tokens of a pass, which predicts every word, and the end of every sentence."""
        return prepared.n_tokens + (0 if self.data.regime == "stream" else prepared.n_sentences)

    def total_tokens(self, prepared: Prepared) -> int:
        """Tokens of a complete run."""
        passes = math.ceil(self.schedule.epochs * self.pass_tokens(prepared))
        return passes if self.schedule.tokens is None else self.schedule.tokens

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is the inverse."""
        return dataclasses.asdict(self)


def fitted_recipe(prepared: Prepared, settings: Mapping[str, str] | None = None) -> Recipe:
    """The recipe where none is named, changed by `settings` as in `Recipe.load`.

    Passes, warm-up and evaluations that are not in `settings` are fitted to small data.
    """
    settings = settings or {}
    recipe = Recipe.load(DEFAULT, settings)

    def fit(section: str, key: str, value: float) -> None:
        nonlocal recipe
        if f"{section}.{key}" not in settings:
            recipe = recipe.replaced(**{section: {key: value}})

    schedule, every = recipe.schedule, recipe.run.evaluate_tokens
    if schedule.tokens is None:
        factor = math.sqrt(max(1.0, _ENOUGH_TOKENS / max(1, recipe.pass_tokens(prepared))))
        epochs = min(_MAX_EPOCHS, round(schedule.epochs * factor))
        fit("schedule", "epochs", float(max(schedule.epochs, epochs)))
    total = recipe.total_tokens(prepared)
    fit("schedule", "warmup_tokens", min(schedule.warmup_tokens, int(total * _WARMUP_SHARE)))
    fit("run", "evaluate_tokens", min(every, max(1, total // _MIN_EVALUATIONS)))
    return recipe


# --------------------------------------------------------------------------- files


def recipe_names(folder: Path = _FOLDER) -> list[str]:
    """The shipped recipes of a folder, those of pretraining by default."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def shipped_text(name: str, folder: Path = _FOLDER) -> str:
    """The file of a shipped recipe: what differs from the defaults."""
    if name not in recipe_names(folder):
        near = difflib.get_close_matches(name, recipe_names(folder), 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"no recipe is called {name!r}; {hint}use one of {', '.join(recipe_names(folder))} or "
            "the path of a .toml file"
        )
    return (folder / f"{name}.toml").read_text(encoding="utf-8")


def recipe_text(name: str) -> str:
    """A shipped recipe with all its keys, each with its value and what it does; of a task the file.

    Recipes of tasks are called TASK-NAME, so the names do not collide.
    """
    if name in recipe_names(TASK_RECIPES):
        return shipped_text(name, TASK_RECIPES)
    heading = [line for line in shipped_text(name).split("\n") if line.startswith("#")]
    return "\n".join([*heading, *_render(Recipe.load(name))]) + "\n"


def _render(recipe: Recipe) -> Iterator[str]:
    for section in dataclasses.fields(recipe):
        if section.name == "name":
            continue
        yield f"\n[{section.name}]"
        values = getattr(recipe, section.name)
        for field in dataclasses.fields(values):
            value, comment = getattr(values, field.name), field.metadata["comment"]
            if value is None and field.default is None:
                row = f"# {field.name} = {_toml(field.metadata['example'])}"
            else:
                row = f"{field.name} = {_toml(value)}"
            # A long row has its comment above.
            yield from (
                [f"# {comment}", row] if len(row) > _COLUMN else [f"{row:<{_COLUMN}}  # {comment}"]
            )


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000:
        return f"{value:_}"
    return json.dumps("null" if value is None else value)


def read_recipe(
    source: str | Path, overrides: Mapping[str, str] | None, task: str | None = None
) -> dict[str, Any]:
    """Read a recipe as TOML values; `source` and `overrides` as in `Recipe.load`.

    Recipes of a task are called TASK-NAME; there the name alone is enough.
    """
    path = Path(source)
    try:
        if path.suffix == ".toml":
            text = path.read_text(encoding="utf-8")
        elif task is None:
            text = shipped_text(str(source))
        else:
            whole = f"{task}-{source}"
            found = whole if whole in recipe_names(TASK_RECIPES) else str(source)
            text = shipped_text(found, TASK_RECIPES)
        data: dict[str, Any] = _without_null(tomllib.loads(text))
    except OSError:
        raise ConfigError(f"recipe '{path}' cannot be read; check the path") from None
    except UnicodeDecodeError:
        raise ConfigError(f"recipe '{path}' is not UTF-8; save it so") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"recipe '{path}' is not valid TOML: {error}; correct it") from None
    _override(data, overrides or {})
    data.setdefault("name", path.stem)
    return data


def _without_null(value: Any) -> Any:
    """TOML has no word for None: in recipes it is "null"."""
    if isinstance(value, dict):
        return {name: _without_null(item) for name, item in value.items()}
    return None if value == "null" else value


def _override(data: dict[str, Any], settings: Mapping[str, str]) -> None:
    """Change keys of a recipe: "section.key" to a value in TOML's notation."""
    for key, text in settings.items():
        section, _, name = key.partition(".")
        if not name:
            places = [name for name, part in data.items() if isinstance(part, dict) and key in part]
            example = f"{places[0]}.{key}={text}" if places else "optimizer.lr=0.002"
            raise ConfigError(f"--set {key}={text}: name the section too, e.g. {example}")
        if section == "name" or not isinstance(data.setdefault(section, {}), dict):
            raise ConfigError(
                f"--set {key}={text}: {section!r} is not a section; see `elmore pretrain --recipes`"
            )
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text  # a bare word is a string
        data[section][name] = _without_null(value)

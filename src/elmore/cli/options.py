"""The options that verbs share, and how a function becomes a verb.

The defaults of a function's parameters declare its options: `top: int = options.count(10, "How many
to list.")` is --top. Options that belong together are the fields of a dataclass, and the function
gets them as one object: `model: ModelChoice = options.group(ModelChoice)`.
"""

from __future__ import annotations

import functools
import inspect
import io
import itertools
import logging
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, get_args

import click

from elmore.base.messages import shown
from elmore.cli.console import Console, several
from elmore.cli.main import VERBS
from elmore.config import ComputePrecision
from elmore.errors import ConfigError, FormatError
from elmore.text.tokenizer import CONVENTIONS

if TYPE_CHECKING:
    from elmore.base.io import Errors
    from elmore.elmo import Elmo
    from elmore.embedding.load import ModelPath
    from elmore.formats.checkpoint import Checkpoint
    from elmore.options import LayerChoice
    from elmore.text.reading import Counts, Reading
    from elmore.text.segmenter import Tokenizer
    from elmore.text.tokenizer import Sentence

_log = logging.getLogger("elmore.cli")
COUNT = click.IntRange(1, 1 << 40)
# Far more than any machine has; without a limit a typo could exhaust the system.
CPUS = click.IntRange(1, 4096)
PATH = click.Path(path_type=Path)


# --------------------------------------------------------------------------- declarations


class _ClickOption(click.Option):
    """An option whose variable is called after the flag, which users know, not the parameter."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        flag = max(self.opts, key=len).removeprefix("--").replace("-", "_").upper()
        return os.environ.get(f"{ctx.auto_envvar_prefix}_{flag}") or None


@dataclass(frozen=True, eq=False)
class _Option:
    """An option or argument; without names, it has that of the parameter."""

    kind: type[click.Parameter]
    names: str
    settings: Mapping[str, Any]

    def parameters(self, name: str) -> list[click.Parameter]:
        names = self.names.split() or [f"--{name.replace('_', '-')}"] * (self.kind is _ClickOption)
        return [self.kind([*names, name], **self.settings)]

    def value(self, name: str, given: Mapping[str, Any]) -> Any:
        return given.get(name, self.settings.get("default"))


@dataclass(frozen=True, eq=False)
class _Group:
    """Options that a function gets as one object."""

    kind: Callable[..., Any]
    options: Mapping[str, _Option]
    without: Collection[str]

    def parameters(self, _: str) -> list[click.Parameter]:
        chosen = [name for name in self.options if name not in self.without]
        return [made for name in chosen for made in self.options[name].parameters(name)]

    def value(self, _: str, given: Mapping[str, Any]) -> Any:
        values = {name: option.value(name, given) for name, option in self.options.items()}
        return self.kind(**values)


def option(help: str, metavar: str | None = None, *, names: str = "", **settings: Any) -> Any:
    """An option as `click.option` takes it; `names` are those of the command line."""
    return _Option(_ClickOption, names, {"help": help, "metavar": metavar, **settings})


def argument(metavar: str | None = None, **settings: Any) -> Any:
    """An argument as `click.argument` takes it."""
    return _Option(click.Argument, "", {"metavar": metavar, **settings})


def flag(help: str, **settings: Any) -> Any:
    """An option without a value."""
    return option(help, is_flag=True, **settings)


def count(default: int | None, help: str, metavar: str = "N", **settings: Any) -> Any:
    """An option that is a number of things."""
    return option(help, metavar, **{"type": COUNT, "default": default, **settings})


def choice(values: Sequence[str], default: str | None, help: str, **settings: Any) -> Any:
    """An option with a few possible values."""
    return option(help, type=click.Choice(values), default=default, **settings)


def path(help: str, metavar: str = "FILE", **settings: Any) -> Any:
    """An option that is a path."""
    return option(help, metavar, type=PATH, **settings)


def repeated(help: str, metavar: str = "FILE", **settings: Any) -> Any:
    """An option that may be given several times."""
    return option(f"{help}; may be repeated.", metavar, multiple=True, **settings)


def group(kind: Callable[..., Any], *, without: Collection[str] = (), **changed: Any) -> Any:
    """The options that `kind` declares as one object, some left out and some changed."""
    return _Group(kind, {**declared(kind), **changed}, without)


def keywords(**options: Any) -> Any:
    """Options that a function gets as one dictionary, to pass them on as keywords."""
    return _Group(dict, options, ())


def declared(function: Callable[..., Any]) -> dict[str, Any]:
    """The options that the parameters of a function or dataclass declare."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if isinstance(p.default, _Option | _Group)}


def verb(examples: str, *, json: bool = True) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function; its help is the line of `VERBS` and the docstring."""

    def decorate(function: Callable[..., None]) -> click.Command:
        name = function.__name__.replace("_", "-")
        [what] = (verbs[name] for verbs in VERBS.values() if name in verbs)
        help = f"{what[:1].upper()}{what[1:]}.\n\n{inspect.getdoc(function) or ''}"
        return command(name, function, declared(function), help, examples, json=json)

    return decorate


def command(
    name: str,
    function: Callable[..., None],
    own: Mapping[str, Any],
    help: str,
    examples: str,
    *,
    json: bool = True,
) -> click.Command:
    """Make a command of a function, which gets --json, -q and -v as `console`."""
    switches = {
        "json": flag("Print the report as JSON."),
        "quiet": flag("Print errors only.", names="-q --quiet"),
        "verbose": flag("Print more.", names="-v --verbose"),
        "debug": flag("Show the traceback of an error."),
    }
    if not json:
        del switches["json"]

    def run(**given: Any) -> None:
        chosen = {name: given.get(name, False) for name in ("json", "quiet", "verbose")}
        console = Console(**chosen)  # `main` has seen --debug
        with console.reporting():
            values = {name: what.value(name, given) for name, what in own.items()}
            function(console=console, **values)

    every = {**own, **switches}
    params = [made for name, what in every.items() for made in what.parameters(name)]
    return click.Command(name, callback=run, params=params, help=help, epilog=epilog(examples))


def epilog(text: str) -> str:
    """The end of a verb's help: examples and remarks, laid out as they are written."""
    return "\n\n".join(f"\b\n{part}" for part in f"examples:\n{text.rstrip()}".split("\n\n"))


# --------------------------------------------------------------------------- single options


def layers(default: str | None = "mean", more: str = "", *, every: str = "") -> Any:
    """--layers; `every` says what `all` is for, where there is more than one mix."""
    names = ("mean", "top", *(("all",) if every else ()))

    def parse(value: str) -> LayerChoice | str:
        if value in names:
            return value
        try:
            return [float(part) for part in value.split(",")] if "," in value else int(value)
        except ValueError:
            raise click.BadParameter(
                f"'{value}' is not one of {', '.join(names)}, a number, or weights w0,w1,w2"
            ) from None

    more += f"; all for {every}" if every else ""
    what = f"Mean, top, a number, or weights w0,w1,w2{more}."
    return option(what, "CHOICE", type=parse, default=default)


def tokenizer(default: str | None = None) -> Any:
    """--tokenizer."""
    own = "" if default else ", by default as the model's training text was"
    what = f"How raw text is split: {', '.join(CONVENTIONS)}, or MODULE:FUNCTION of your own{own}."
    return option(what, "NAME", default=default)


def output(what: str, *, required: bool = False) -> Any:
    """-o, where - is stdout like nothing."""
    return path(
        what,
        "PATH",
        names="-o --output",
        required=required,
        callback=lambda ctx, param, value: None if value == Path("-") else value,
    )


def _go_offline(context: click.Context, _: click.Parameter, wanted: bool) -> bool:
    """Forbid the network while a verb runs, for child processes too: hence the environment."""
    if wanted:
        before = os.environ.get("ELMORE_OFFLINE", "")
        context.call_on_close(lambda: os.environ.update(ELMORE_OFFLINE=before))
        os.environ["ELMORE_OFFLINE"] = "1"
    return wanted


def number_or_name(value: str) -> int | str:
    """A number, or a name; a file whose name is a number can be written as ./50000."""
    return int(value) if value.isdecimal() else value


cache = path("Keep the layers in this folder for the next run.", "FOLDER")
device = option("cpu, cuda, cuda:1, mps, ...", "NAME", default="cpu")
errors = choice(
    ["strict", "replace", "skip"],
    "strict",
    "Lines that are not UTF-8: stop with the line number, replace the bad bytes, or skip the line.",
)
force = flag("Replace an existing output.")
limit = count(None, "Stop after N sentences.")
offline = flag("Never use the network, like ELMORE_OFFLINE=1.", callback=_go_offline)
seed = option("Random seed.", "N", type=int, default=0)
split_sentences = flag("Split running text into sentences, instead of one sentence per line.")
seeds = count(1, "Train with N seeds and report mean and standard deviation.")
start = choice(
    ["zeros", "warm"],
    "zeros",
    "LSTM state before each sentence: zeros, or the state after a short text.",
)
threads = count(None, "CPU threads, by default all.", type=CPUS)
tokenized = flag("Lines are tokens separated by spaces.")
vectors = path("Static word vectors: GloVe or word2vec.")


def heldout(default: float) -> Any:
    """--heldout."""
    return option("Share of the documents to hold out.", "SHARE", type=float, default=default)


def format(formats: Mapping[str, Collection[str]], default: str) -> Any:
    """-f; `formats` are names with the suffixes that mean them."""
    what = f"Output format, by default from the suffix of -o, else {default}."
    return choice(tuple(formats), None, what, names="-f --format")


def format_of(
    chosen: str | None, output: Path | None, formats: Mapping[str, Collection[str]], default: str
) -> str:
    """The format of -f, or of the suffix of -o."""
    suffix = "" if output is None else output.suffix.lower()
    if chosen is not None or not suffix:
        return chosen or default
    for name, suffixes in formats.items():
        if suffix in suffixes:
            return name
    # Another format in a file called x.pt would be a surprise later.
    raise ConfigError(f"'{shown(output, 120)}' has an unknown suffix; pass -f {', '.join(formats)}")


# --------------------------------------------------------------------------- a training run


def _settings(ctx: click.Context, _: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """Turn the KEY=VALUE texts of --set into a table."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, _value in pairs:
        if not equals:
            raise ConfigError(f"--set {key!r} has no value; write KEY=VALUE")
    return {key.strip(): value.strip() for key, _equals, value in pairs}


def recipe(default: str | None, what: str = "") -> Any:
    """--recipe."""
    help = f"Training recipe, see `elmore pretrain --recipes`{what}."
    return option(help, "NAME|FILE", default=default)


settings = repeated(
    "Change a key of the recipe, e.g. optimizer.lr=0.002",
    "KEY=VALUE",
    names="--set",
    callback=_settings,
)


@dataclass(frozen=True, kw_only=True)
class RunChoice:
    """A run and its recipe."""

    output: Path = output("Folder of the run.", required=True)
    force: bool = force
    recipe: str = recipe("laptop")
    settings: dict[str, str] = settings
    resume: bool = flag("Resume the run in -o.")
    seed: int = seed
    tensorboard: bool = flag("Write event files too.")

    def __post_init__(self) -> None:
        if self.resume and self.force:
            raise ConfigError("--resume and --force exclude each other; leave one out")


# --------------------------------------------------------------------------- the model


def model_path(words: Sequence[str]) -> ModelPath:
    """The model that words name; two files may also be written OPTIONS,WEIGHTS."""
    if len(words) == 1 and "," in words[0] and not os.path.exists(words[0]):
        words = words[0].split(",")
    return words[0] if len(words) == 1 else tuple(words)


def read_model(model: ModelPath) -> Checkpoint:
    """Read a model without torch.

    Raises:
        FormatError: its files are at fault.
    """
    from elmore.embedding.load import open_model, read_source
    from elmore.published.catalog import catalog

    if isinstance(model, str) and os.path.exists(model) and model in catalog():
        _log.warning("'%s' is the file or folder here, not the published model", model)
    with open_model(model) as source:
        try:
            return read_source(source, model)
        except ConfigError as error:  # a bad value in a file is not a wrong use of ours
            raise FormatError(str(error)) from error


def _named(help: str) -> Any:
    """--model."""
    return option(
        help,
        "NAME|PATH",
        type=click.Path(),
        callback=lambda ctx, param, value: None if value is None else model_path([value]),
    )


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """A model and how it computes."""

    model: ModelPath | None = _named(
        "A name of `elmore models`, a folder, an archive, a TensorFlow checkpoint, or two files "
        "OPTIONS,WEIGHTS; by default english, which is included."
    )
    offline: bool = offline
    device: str = device
    threads: int | None = threads
    precision: ComputePrecision | None = choice(
        get_args(ComputePrecision),
        None,
        "Precision of the computation, by default the one the model is stored in (float32 instead "
        "of int8 without the C extension); bfloat16 needs a GPU.",
    )
    batch_tokens: int | None = count(None, "Tokens per batch.")
    start: Any = start

    @property
    def path(self) -> ModelPath:
        """What --model names, by default the English model."""
        from elmore.published.catalog import bundled_model

        return bundled_model() if self.model is None else self.model

    @functools.cached_property
    def checkpoint(self) -> Checkpoint:
        """The model's files."""
        return read_model(self.path)

    def options(self) -> dict[str, Any]:
        """How it computes, as keywords of `Elmo`."""
        own = {field.name for field in fields(self)} - {"model", "offline"}
        return {name: getattr(self, name) for name in own}

    def load(self, tokenizer: str | None = None) -> Elmo:
        """The model, with a tokenizer for verbs that read text."""
        from elmore.elmo import Elmo

        return Elmo(self.checkpoint, tokenizer=tokenizer, **self.options())

    def load_named(self) -> Elmo | None:
        """The model of --model, or None for the one that a trained task has."""
        if self.model is not None:
            return self.load()
        if self.precision is not None:
            raise ConfigError("--precision needs --model; elmore computes as in training without")
        return None


def model(*without: str, help: str = "") -> Any:
    """--model and how it computes; `without` options that do not apply."""
    return group(ModelChoice, without=without, **({"model": _named(help)} if help else {}))


# --------------------------------------------------------------------------- text


def is_sentence(word: str) -> bool:
    """Whether an INPUT is text; a misspelt name of a file must not be taken for it."""
    return len(word.split()) > 1 and not os.path.exists(word)


def _streams(words: Sequence[str]) -> list[str | BinaryIO]:
    """The inputs, with each sentence as a stream that is read like a file."""
    return [
        io.BytesIO(word.encode("utf-8", "surrogateescape")) if is_sentence(word) else word
        for word in words
    ]


@dataclass(frozen=True, kw_only=True)
class TextInput:
    """What to read and how."""

    inputs: tuple[str, ...] = argument("[INPUT]...", nargs=-1, type=click.Path())
    tokenized: bool = tokenized
    split_sentences: bool = split_sentences
    errors: Errors = errors
    column: str | int | None = option(
        "CSV, TSV or JSON lines: where the text is, by the name of the column or key, or by the "
        "number of the column from 1.",
        "NAME|N",
        type=number_or_name,
    )
    conllu: bool = flag("CoNLL-U, which .conllu files are without it.")
    tokenizer: str | None = tokenizer()
    limit: int | None = limit

    def options(self) -> dict[str, Any]:
        """As keywords of `elmore.bulk` and `elmore.senses`."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "inputs"}

    @functools.cached_property
    def counts(self) -> Counts:
        """What was read so far."""
        from elmore.text.reading import Counts

        return Counts()

    @property
    def words(self) -> tuple[str, ...]:
        """The inputs; - if there are none."""
        return self.inputs or ("-",)

    def check(self, console: Console, output: Path | None = None) -> None:
        """Refuse what cannot be read before a model is loaded; explain a silence."""
        from elmore.text.reading import check_inputs

        if files := [word for word in self.words if not is_sentence(word)]:
            check_inputs(files, output)
        if not self.inputs and sys.stdin is not None and sys.stdin.isatty():
            console.say("reading from the terminal; end with Ctrl-D")

    def read(self, elmo: Elmo, words: Sequence[str] = ()) -> Iterator[tuple[str, Sentence]]:
        """The sentences of all inputs, or of some, each with its text, up to --limit."""
        reading = self._reading(self.tokenizer or elmo.tokenize)
        inputs = _streams(words or self.words)
        left = None if self.limit is None else self.limit - self.counts.sentences
        found = reading.read(inputs, self.counts, elmo.checkpoint.alphabet)
        return itertools.islice(found, left)

    def sentences(self, elmo: Elmo, words: Sequence[str] = ()) -> Iterator[Sentence]:
        """The sentences of `read` alone."""
        return (sentence for _, sentence in self.read(elmo, words))

    def count(self, console: Console) -> int | None:
        """How many sentences there are, for a bar; None if nobody would see it."""
        if console.quiet or sys.stderr is None or not sys.stderr.isatty():
            return None
        # Counting reads the files once more, in a thousandth of the time of embedding them.
        count = self._reading("spaces").count(_streams(self.words))
        return count if count is None or self.limit is None else min(count, self.limit)

    def _reading(self, tokenizer: Tokenizer) -> Reading:
        from elmore.text.reading import Reading

        chosen = {**self.options(), "tokenizer": tokenizer}
        del chosen["limit"]
        return Reading(**chosen)

    def notes(self, checkpoint: Checkpoint, counts: Counts | None = None) -> list[str]:
        """What was unusual in the text that was read, here or as `counts` says."""
        counts, alphabet = counts or self.counts, checkpoint.alphabet
        notes = [f"{counts.empty} empty"] if counts.empty else []
        if counts.cut and alphabet is not None:
            unit = "bytes" if alphabet.kind == "bytes" else "characters"
            # Two of them mark the start and end of a word.
            notes.append(f"{several(counts.cut, 'token')} cut at {alphabet.max_chars - 2} {unit}")
        for n, what in ((counts.replaced, "replaced"), (counts.skipped, "skipped")):
            if n:
                notes.append(f"{several(n, 'line')} with invalid UTF-8 {what}")
        return notes

    def report(self, console: Console, checkpoint: Checkpoint, *more: str) -> None:
        """Say what a reader of the result should know about the text that was read."""
        if notes := [*self.notes(checkpoint), *more]:
            read = several(self.counts.sentences, "sentence")
            console.say(f"read {read}: {', '.join(notes)}")


text_input = group(TextInput)

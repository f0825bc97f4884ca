"""The options that verbs share: each is defined once here and means the same everywhere.

Options that belong together come as one decorator and reach the function as one object:
`text_input` as a `TextInput`, `model` as a `ModelChoice`. A verb defines only what no other verb
has.
"""

from __future__ import annotations

import functools
import io
import itertools
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from elmore.cli.console import Console, several
from elmore.config import ComputePrecision
from elmore.errors import ConfigError, FormatError
from elmore.text.tokenizer import CONVENTIONS

if TYPE_CHECKING:
    from elmore.base.io import Errors
    from elmore.elmo import Elmo
    from elmore.embedding.load import ModelPath
    from elmore.formats.checkpoint import Checkpoint
    from elmore.options import LayerChoice
    from elmore.text.characters import Alphabet
    from elmore.text.reading import Counts, SentenceReader
    from elmore.text.segmenter import Tokenizer
    from elmore.text.sentence import Sentence

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
_log = logging.getLogger("elmore.cli")


def epilog(text: str) -> str:
    """The end of a verb's help: examples and remarks, laid out as they are written."""
    return "\n\n".join(f"\b\n{part}" for part in f"examples:\n{text.rstrip()}".split("\n\n"))


def verb(examples: str, *, json: bool = True) -> Callable[[Function], click.Command]:
    """Make a command of a function, which gets --json, -q and -v as `console`."""

    def decorate(function: Function) -> click.Command:
        @functools.wraps(function)
        def run(
            *, quiet: bool, verbose: bool, debug: bool, json: bool = False, **given: Any
        ) -> Any:
            console = Console(json=json, quiet=quiet, verbose=verbose)  # `main` has seen --debug
            with console.reporting():
                return function(console=console, **given)

        command = click.command(epilog=epilog(examples))(run)
        switches = {
            "--json": "Print the report as JSON.",
            "-q --quiet": "Print errors only.",
            "-v --verbose": "Print more.",
            "--debug": "Show the traceback of an error.",
        }
        for names, help in list(switches.items())[not json :]:
            command.params.append(click.Option(names.split(), is_flag=True, help=help))
        return command

    return decorate


# --------------------------------------------------------------------------- values

COUNT = click.IntRange(1, 1 << 40)
# Far more than any machine has; without a limit a typo could exhaust the system.
CPUS = click.IntRange(1, 4096)
PATH = click.Path(path_type=Path)
ALL_LAYERS = "all"


def _layers(value: str) -> LayerChoice | str:
    """`mean`, `top`, `all`, `2` or `0.2,0.3,0.5`."""
    if value in ("mean", "top", ALL_LAYERS):
        return value
    try:
        return [float(part) for part in value.split(",")] if "," in value else int(value)
    except ValueError:
        raise click.BadParameter(
            f"'{value}' is not one of mean, top, all, a number, or weights w0,w1,w2"
        ) from None


def _tokenizer(value: str) -> str:
    """A convention, or MODULE:FUNCTION."""
    if ":" in value or value in CONVENTIONS:
        return value
    known = ", ".join(CONVENTIONS)
    raise click.BadParameter(f"'{value}' is not one of {known}, or MODULE:FUNCTION")


def _settings(ctx: click.Context, _: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """Turn the KEY=VALUE texts of --set into a table."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, _value in pairs:
        if not equals:
            raise ConfigError(f"--set {key!r} has no value; write KEY=VALUE")
    return {key.strip(): value.strip() for key, _equals, value in pairs}


# --------------------------------------------------------------------------- single options

flag = functools.partial(click.option, is_flag=True)


def all_of(*options: Decorator) -> Decorator:
    """Several options as one decorator, in the order of the help."""
    return lambda function: functools.reduce(lambda f, add: add(f), reversed(options), function)


def count(name: str, default: int | None, help: str, metavar: str = "N") -> Decorator:
    """An option that is a number of things."""
    return click.option(name, type=COUNT, default=default, metavar=metavar, help=help)


def path(name: str, metavar: str, help: str) -> Decorator:
    """An option that names a file or folder."""
    return click.option(name, type=PATH, metavar=metavar, help=help)


def _go_offline(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Forbid the network while a verb runs, for child processes too: hence the environment."""
    if wanted:
        before = os.environ.get("ELMORE_OFFLINE", "")
        context.call_on_close(lambda: os.environ.update(ELMORE_OFFLINE=before))
        os.environ["ELMORE_OFFLINE"] = "1"


column = click.option(
    "--column",
    type=lambda value: int(value) if value.isdecimal() else value,
    metavar="NAME|N",
    help="CSV, TSV or JSON lines: where the text is, by the name of the column or key, or by the "
    "number of the column from 1.",
)
device = click.option("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1, mps, ...")
force = flag("--force", help="Replace an existing output.")
limit = count("--limit", None, "Stop after N sentences.")
offline = flag(
    "--offline",
    expose_value=False,
    callback=_go_offline,
    help="Never use the network, like ELMORE_OFFLINE=1.",
)
plot = path("--plot", "PICTURE", "Draw it too: svg, png or pdf.")
seed = click.option("--seed", type=int, default=0, metavar="N", help="Random seed.")
seeds = count("--seeds", 1, "Train with N seeds and report mean and standard deviation.")
start = click.option(
    "--start",
    type=click.Choice(["zeros", "warm"]),
    default="zeros",
    help="LSTM state before each sentence: zeros, or the state after a short text.",
)
threads = click.option("--threads", type=CPUS, metavar="N", help="CPU threads, by default all.")
vectors = path("--vectors", "FILE", "Static word vectors: GloVe or word2vec.")


def layers(default: str | None = "mean", more: str = "") -> Decorator:
    """--layers."""
    what = "Mean, top, a number, or weights w0,w1,w2"
    return click.option(
        "--layers", type=_layers, default=default, metavar="CHOICE", help=f"{what}{more}."
    )


def tokenizer(default: str | None = None) -> Decorator:
    """--tokenizer."""
    own = "" if default else ", by default as the model's training text was"
    return click.option(
        "--tokenizer",
        type=_tokenizer,
        default=default,
        metavar="NAME",
        help=f"How raw text is split: {', '.join(CONVENTIONS)}, or MODULE:FUNCTION of your "
        f"own{own}.",
    )


def output(what: str, *, required: bool = False) -> Decorator:
    """-o, where - is stdout like nothing, and --force."""
    named = click.option(
        "-o",
        "--output",
        type=PATH,
        required=required,
        metavar="PATH",
        help=what,
        callback=lambda ctx, param, value: None if value == Path("-") else value,
    )
    return all_of(named, force)


def heldout(default: float) -> Decorator:
    """--heldout."""
    return click.option(
        "--heldout",
        type=float,
        default=default,
        metavar="SHARE",
        help="Share of the documents to hold out.",
    )


# Where to keep layers, as `cache` and `max_bytes`.
caching = all_of(
    path("--cache", "FOLDER", "Keep the layers in this folder for the next run."),
    click.option(
        "--cache-gb",
        "max_bytes",
        type=click.FloatRange(0, min_open=True),
        default=17,
        metavar="N",
        callback=lambda ctx, param, value: max(1, int(value * 1e9)),
        help="Size limit of --cache.",
    ),
)


def _bundle(kind: type[Any], argument: str, *options: Decorator) -> Decorator:
    """Hand options to the function as one argument, a dataclass with fields of their names."""
    declared: Any = all_of(*options)(lambda: None)
    names = [param.name for param in declared.__click_params__ if param.expose_value]

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def run(**given: Any) -> Any:
            own = {name: given.pop(name) for name in names}
            return function(**{argument: kind(**own)}, **given)

        return all_of(*options)(run)

    return decorate


# --------------------------------------------------------------------------- a training run


@dataclass(frozen=True, kw_only=True)
class RunChoice:
    """A run and its recipe: fields are the options of `run`."""

    output: Path
    force: bool
    recipe: str
    settings: dict[str, str]
    resume: bool
    seed: int
    tensorboard: bool = False

    def __post_init__(self) -> None:
        if self.resume and self.force:
            raise ConfigError("--resume and --force exclude each other; leave one out")


def recipe(default: str | None, what: str = "") -> Decorator:
    """--recipe and --set, whose table is `settings`."""
    return all_of(
        click.option(
            "--recipe",
            default=default,
            metavar="NAME|FILE",
            help=f"Training recipe, see `elmore pretrain --recipes`{what}.",
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            callback=_settings,
            help="Change a key of the recipe, e.g. optimizer.lr=0.002; may be repeated.",
        ),
    )


def run(recipe: Decorator, *more: Decorator, required: bool = True) -> Decorator:
    """-o, --force, --recipe, --set, --resume, --seed and more, as `run`."""
    where = output("Folder of the run.", required=required)
    resume = flag("--resume", help="Resume the run in -o.")
    return _bundle(RunChoice, "run", where, recipe, resume, seed, *more)


tensorboard = flag("--tensorboard", help="Write event files too.")


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
    from elmore.published.catalog import INCLUDED, catalog

    if isinstance(model, str) and os.path.exists(model) and model in {*INCLUDED, *catalog()}:
        _log.warning("'%s' is the file or folder here, not the published model", model)
    with open_model(model) as source:
        try:
            return read_source(source, model)
        except ConfigError as error:  # a bad value in a file is not a wrong use of ours
            raise FormatError(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """A model and how it computes: fields are the options of `model`."""

    model: ModelPath | None = None
    device: str = "cpu"
    threads: int | None = None
    precision: ComputePrecision | None = None
    batch_tokens: int | None = None
    start: Any = "zeros"

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
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "model"}

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


_COMPUTE: dict[str, Decorator] = {
    "device": device,
    "threads": threads,
    "precision": click.option(
        "--precision",
        type=click.Choice(get_args(ComputePrecision)),
        help="Precision of the computation, by default the one the model is stored in; bfloat16 "
        "needs a GPU.",
    ),
    "batch_tokens": count("--batch-tokens", None, "Tokens per batch."),
    "start": start,
}
_MODEL = (
    "A name of `elmore models`, a folder, an archive, a TensorFlow checkpoint, or two files "
    "OPTIONS,WEIGHTS; by default english, which is included."
)


def model(help: str = _MODEL, *, without: Sequence[str] = ()) -> Decorator:
    """--model, --offline and how it computes, as `model`; `without` options that do not apply."""
    named = click.option(
        "--model",
        type=click.Path(),
        metavar="NAME|PATH",
        help=help,
        callback=lambda ctx, param, value: None if value is None else model_path([value]),
    )
    compute = (option for name, option in _COMPUTE.items() if name not in without)
    return _bundle(ModelChoice, "model", named, offline, *compute)


# --------------------------------------------------------------------------- text


def is_sentence(word: str) -> bool:
    """Whether an INPUT is text; a misspelt name of a file must not be taken for it."""
    return len(word.split()) > 1 and not os.path.exists(word)


@dataclass(frozen=True, kw_only=True)
class TextInput:
    """What to read and how: fields are the options of `text_input`."""

    inputs: tuple[str, ...]
    tokenized: bool = False
    split_sentences: bool = False
    errors: Errors = "strict"
    column: str | int | None = None
    conllu: bool = False
    tokenizer: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.tokenized and self.split_sentences:
            raise ConfigError("--tokenized and --split-sentences exclude each other; leave one out")
        if self.conllu and self.column is not None:
            raise ConfigError("--column and --conllu exclude each other; leave one out")

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

    @property
    def files(self) -> list[str]:
        """The inputs that are not sentences."""
        return [word for word in self.words if not is_sentence(word)]

    def check(self, console: Console, output: Path | None = None) -> None:
        """Refuse what cannot be read before a model is loaded; explain a silence."""
        from elmore.text.reading import check_inputs

        if self.files:
            check_inputs(self.files, output)
        if not self.inputs and sys.stdin is not None and sys.stdin.isatty():
            console.say("reading from the terminal; end with Ctrl-D")

    def read(self, elmo: Elmo, words: Sequence[str] = ()) -> Iterator[tuple[str, Sentence]]:
        """The sentences of all inputs, or of some, each with its text, up to --limit."""
        from elmore.text.records import as_text

        def each() -> Iterator[tuple[str, Sentence]]:
            reader = self._reader(self.tokenizer or elmo.tokenize, elmo.checkpoint.alphabet)
            for word in words or self.words:
                if is_sentence(word):
                    stream = io.BytesIO(word.encode("utf-8", "surrogateescape"))
                    for text in reader.reading.texts(stream, "the argument", self.counts):
                        yield as_text(text), reader.sentence(text, self.counts)
                else:
                    yield from reader.read([word], self.counts)

        left = None if self.limit is None else self.limit - self.counts.sentences
        return itertools.islice(each(), left)

    def sentences(self, elmo: Elmo, words: Sequence[str] = ()) -> Iterator[Sentence]:
        """The sentences of `read` alone."""
        return (sentence for _, sentence in self.read(elmo, words))

    def count(self, console: Console) -> int | None:
        """How many sentences there are, for a bar; None if nobody would see it."""
        if console.quiet or sys.stderr is None or not sys.stderr.isatty():
            return None
        if len(self.files) < len(self.words):
            return None
        # Counting reads the files once more, in a thousandth of the time of embedding them.
        count = self._reader("spaces", None).count(self.inputs)
        return count if count is None or self.limit is None else min(count, self.limit)

    def _reader(self, tokenizer: Tokenizer, alphabet: Alphabet | None) -> SentenceReader:
        from elmore.text.reading import Reading, SentenceReader
        from elmore.text.records import Records

        reading = Reading(
            tokenized=self.tokenized,
            split_sentences=self.split_sentences,
            tokenizer=tokenizer,
            errors=self.errors,
        )
        return SentenceReader(reading, alphabet, Records(column=self.column, conllu=self.conllu))

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


tokenized = flag("--tokenized", help="Lines are tokens separated by spaces.")
_READING = (
    tokenized,
    flag(
        "--split-sentences",
        help="Split running text into sentences, instead of one sentence per line.",
    ),
    click.option(
        "--errors",
        type=click.Choice(["strict", "replace", "skip"]),
        default="strict",
        help="Lines that are not UTF-8: stop with the line number, replace the bad bytes, or skip "
        "the line.",
    ),
)
# INPUT and how it is read, as `text`.
text_input = _bundle(
    TextInput,
    "text",
    click.argument("inputs", nargs=-1, type=click.Path(), metavar="[INPUT]..."),
    *_READING,
    column,
    flag("--conllu", help="CoNLL-U, which .conllu files are without it."),
    tokenizer(),
    limit,
)
# The same for a verb that reads a complete corpus.
corpus = _bundle(
    TextInput,
    "text",
    click.argument("inputs", nargs=-1, required=True, type=click.Path(), metavar="INPUT..."),
    *_READING,
    tokenizer("ptb"),
)

"""The options that verbs share: each is defined once here and means the same everywhere.

Options that belong together come as one decorator and reach the function as one object:
`text_input` as a `TextInput`, `compute` as a `ComputeChoice`. A verb defines only what no other
verb has.
"""

from __future__ import annotations

import functools
import io
import itertools
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from elmore.config import ComputePrecision
from elmore.errors import ConfigError, FormatError
from elmore.options import Pooling
from elmore.text.tokenizer import CONVENTIONS

if TYPE_CHECKING:
    from elmore.base.io import Errors
    from elmore.cli.console import Console
    from elmore.elmo import Elmo
    from elmore.embedding.load import ModelPath
    from elmore.formats.checkpoint import Checkpoint
    from elmore.options import LayerChoice
    from elmore.text.characters import Alphabet
    from elmore.text.reading import Counts, SentenceReader
    from elmore.text.records import Text
    from elmore.text.segmenter import Tokenizer
    from elmore.text.sentence import Sentence

__all__ = [
    "ALL_LAYERS",
    "COUNT",
    "CPUS",
    "PATH",
    "ComputeChoice",
    "Decorator",
    "Function",
    "TextInput",
    "caching",
    "column",
    "compute",
    "corpus",
    "device",
    "dtype",
    "examples",
    "force",
    "force_output",
    "is_sentence",
    "layers",
    "limit",
    "model",
    "model_path",
    "offline",
    "output",
    "overrides",
    "pool",
    "precision",
    "read_model",
    "recipe",
    "resume",
    "seed",
    "seeds",
    "start",
    "text_input",
    "threads",
    "tokenizer",
    "top",
    "vectors",
    "word_list",
    "workers",
]

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
_log = logging.getLogger("elmore.cli")


def examples(text: str) -> str:
    """The end of a verb's help: examples and remarks, laid out as they are written."""
    return "\n\n".join(f"\b\n{part}" for part in f"examples:\n{text.rstrip()}".split("\n\n"))


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


def _column(value: str) -> str | int:
    """The name of a column, or its number from 1."""
    return int(value) if value.isdecimal() else value


def word_list(text: str) -> list[str]:
    """Words with commas between them."""
    return [word for part in text.split(",") if (word := part.strip())]


def overrides(settings: tuple[str, ...]) -> dict[str, str]:
    """Turn the KEY=VALUE texts of --set into a table."""
    table = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting!r} has no value; write KEY=VALUE")
        table[key.strip()] = value.strip()
    return table


# --------------------------------------------------------------------------- single options

_flag = functools.partial(click.option, is_flag=True)
device = click.option("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1, mps, ...")
dtype = click.option(
    "--dtype",
    type=click.Choice(["float32", "float16"]),
    default="float32",
    help="Type of the stored vectors.",
)
force = _flag("--force", help="Replace an existing output.")
limit = click.option("--limit", type=COUNT, metavar="N", help="Stop after N sentences.")
offline = _flag("--offline", help="Never use the network, like ELMORE_OFFLINE=1.")
pool = click.option(
    "--pool",
    type=click.Choice(get_args(Pooling)),
    help="One vector per sentence instead of one per token; sif to compare sentences.",
)
precision = click.option(
    "--precision",
    type=click.Choice(get_args(ComputePrecision)),
    help="Precision of the computation, by default the one the model is stored in; bfloat16 needs "
    "a GPU.",
)
resume = _flag("--resume", help="Resume the run in -o.")
seed = click.option("--seed", type=int, default=0, metavar="N", help="Random seed.")
seeds = click.option(
    "--seeds",
    type=COUNT,
    default=1,
    metavar="N",
    help="Train with N seeds and report mean and standard deviation.",
)
start = click.option(
    "--start",
    type=click.Choice(["zeros", "warm"]),
    default="zeros",
    help="LSTM state before each sentence: zeros, or the state after a short text.",
)
threads = click.option("--threads", type=CPUS, metavar="N", help="CPU threads, by default all.")
vectors = click.option(
    "--vectors", type=PATH, metavar="FILE", help="Static word vectors: GloVe or word2vec."
)
workers = click.option(
    "--workers", type=CPUS, metavar="N", help="Processes, by default one per CPU."
)
_batch_tokens = click.option("--batch-tokens", type=COUNT, metavar="N", help="Tokens per batch.")


def layers(default: str | None = "mean", more: str = "") -> Decorator:
    """--layers."""
    what = "Mean, top, a number, or weights w0,w1,w2"
    return click.option(
        "--layers", type=_layers, default=default, metavar="CHOICE", help=f"{what}{more}."
    )


def top(default: int, what: str = "How many to list.") -> Decorator:
    """--top."""
    return click.option("--top", type=COUNT, default=default, metavar="K", help=what)


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
    """-o alone; - is stdout, like nothing."""
    return click.option(
        "-o",
        "--output",
        type=PATH,
        required=required,
        metavar="PATH",
        help=what,
        callback=lambda ctx, param, value: None if value == Path("-") else value,
    )


def force_output(what: str, *, required: bool = False) -> Decorator:
    """-o and --force."""
    return _all(output(what, required=required), force)


def recipe(default: str | None, what: str = "") -> Decorator:
    """--recipe and --set."""
    return _all(
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
            help="Change a key of the recipe, e.g. optimizer.lr=0.002; may be repeated.",
        ),
    )


def caching(function: Function) -> Function:
    """--cache and --cache-gb; the function gets `cache` and `max_bytes`."""

    @functools.wraps(function)
    def run(*, cache_gb: float | None, **given: Any) -> Any:
        from elmore.embedding.layer_cache import MAX_BYTES

        max_bytes = MAX_BYTES if cache_gb is None else max(1, int(cache_gb * 1e9))
        return function(max_bytes=max_bytes, **given)

    return _all(
        click.option(
            "--cache",
            type=PATH,
            metavar="FOLDER",
            help="Keep the layers in this folder for the next run.",
        ),
        click.option(
            "--cache-gb",
            type=click.FloatRange(0, min_open=True),
            metavar="N",
            help="Size limit of --cache, by default 17.",
        ),
    )(run)


def _all(*options: Decorator) -> Decorator:
    """Several options as one decorator, in the order of the help."""
    return lambda function: functools.reduce(lambda f, add: add(f), reversed(options), function)


# --------------------------------------------------------------------------- the model


def model(help: str | None = None) -> Decorator:
    """--model and --offline; the function gets `model`, None for the default."""
    usual = (
        "A name of `elmore models`, a folder, an archive, a TensorFlow checkpoint, or two files "
        "OPTIONS,WEIGHTS; by default english, which is included."
    )
    named = click.option(
        "--model",
        type=click.Path(),
        metavar="NAME|PATH",
        help=help or usual,
        callback=lambda ctx, param, value: None if value is None else model_path([value]),
    )
    return _all(named, offline)


def model_path(words: list[str]) -> ModelPath:
    """The model that words name; two files may also be written OPTIONS,WEIGHTS."""
    if len(words) == 1 and "," in words[0] and not os.path.exists(words[0]):
        words = words[0].split(",")
    return words[0] if len(words) == 1 else tuple(words)


def read_model(model: ModelPath | None) -> Checkpoint:
    """Read a model, by default the English one, without torch.

    Raises:
        FormatError: its files are at fault.
    """
    from elmore.embedding.load import open_model, read_source
    from elmore.published.catalog import INCLUDED, bundled_model, catalog

    if isinstance(model, str) and os.path.exists(model) and model in {*INCLUDED, *catalog()}:
        _log.warning("'%s' is the file or folder here, not the published model", model)
    chosen = bundled_model() if model is None else model
    with open_model(chosen) as source:
        try:
            return read_source(source, chosen)
        except ConfigError as error:  # a bad value in a file is not a wrong use of ours
            raise FormatError(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class ComputeChoice:
    """How a model computes: fields are the options of `compute`."""

    device: str = "cpu"
    threads: int | None = None
    precision: ComputePrecision | None = None
    batch_tokens: int | None = None
    start: Any = "zeros"

    def options(self) -> dict[str, Any]:
        """As keywords of `Elmo`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def load(self, checkpoint: Checkpoint, tokenizer: str | None = None) -> Elmo:
        """The model, with a tokenizer for verbs that read text."""
        from elmore.elmo import Elmo

        return Elmo(checkpoint, tokenizer=tokenizer, **self.options())


def compute(*, batches: bool = True, starts: bool = True) -> Decorator:
    """--device, --threads, --precision, --batch-tokens and --start, as `compute`."""
    more = [_batch_tokens] * batches + [start] * starts
    return _bundle(ComputeChoice, "compute", device, threads, precision, *more)


def _bundle(kind: type[Any], argument: str, *options: Decorator) -> Decorator:
    """Hand options to the function as one argument, a dataclass with fields of their names."""
    names = {field.name for field in fields(kind)}

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def run(**given: Any) -> Any:
            own = {name: given.pop(name) for name in names & given.keys()}
            return function(**{argument: kind(**own)}, **given)

        return _all(*options)(run)

    return decorate


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

    @property
    def words(self) -> tuple[str, ...]:
        """The inputs; - if there are none."""
        return self.inputs or ("-",)

    def check(self, console: Console, output: Path | None = None) -> None:
        """Refuse what cannot be read before a model is loaded; explain a silence."""
        from elmore.text.reading import check_inputs

        if files := [word for word in self.words if not is_sentence(word)]:
            check_inputs(files, output)
        console.waiting(self.inputs)

    def reader(self, elmo: Elmo) -> SentenceReader:
        """Splits text as the model does."""
        return self._reader(self.tokenizer or elmo.tokenize, elmo.checkpoint.alphabet)

    def read(self, elmo: Elmo, counts: Counts) -> Iterator[tuple[str, Sentence]]:
        """The sentences of all inputs, each with its text, up to --limit."""
        from elmore.text.records import as_text

        def each() -> Iterator[tuple[str, Sentence]]:
            reader = self.reader(elmo)
            for word in self.words:
                if is_sentence(word):
                    stream = io.BytesIO(word.encode("utf-8", "surrogateescape"))
                    texts: Iterator[Text] = reader.reading.texts(stream, "the argument", counts)
                    for text in texts:
                        yield as_text(text), reader.sentence(text, counts)
                else:
                    yield from reader.read([word], counts)

        return itertools.islice(each(), self.limit)

    def count(self, console: Console) -> int | None:
        """How many sentences there are, for a bar; None if nobody would see it."""
        if console.quiet or sys.stderr is None or not sys.stderr.isatty():
            return None
        if any(map(is_sentence, self.words)):
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


_READING = (
    _flag("--tokenized", help="Lines are tokens separated by spaces."),
    _flag(
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
column = click.option(
    "--column",
    type=_column,
    metavar="NAME|N",
    help="CSV, TSV or JSON lines: where the text is, by the name of the column or key, or by the "
    "number of the column from 1.",
)
_conllu = _flag("--conllu", help="CoNLL-U, which .conllu files are without it.")


def text_input(function: Function) -> Function:
    """INPUT and how it is read, as `text`."""
    inputs = click.argument("inputs", nargs=-1, type=click.Path(), metavar="[INPUT]...")
    own = (*_READING, column, _conllu, tokenizer(), limit)
    return _bundle(TextInput, "text", inputs, *own)(function)


def corpus(function: Function) -> Function:
    """INPUT and how it is read, for verbs that read complete corpora, as `text`."""
    inputs = click.argument(
        "inputs", nargs=-1, required=True, type=click.Path(), metavar="INPUT..."
    )
    return _all(_bundle(TextInput, "text", inputs, *_READING, tokenizer("ptb")), workers)(function)

"""The flags that verbs share: each is defined once, in `_FLAGS`, and means the same everywhere.

A new verb is one file in this folder with `EXAMPLES`, `add_arguments` and `run`, and one line in
`VERBS` in main.py. It takes shared flags from here and defines only what no other verb has.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from elmore.cli.parsing import JOINT, Parser, model_words
from elmore.cli.report import say, say_waiting
from elmore.config import ComputePrecision
from elmore.embedding.vector_files import WRITERS
from elmore.errors import ConfigError, FormatError
from elmore.options import Pooling
from elmore.text.tokenizer import CONVENTIONS

if TYPE_CHECKING:
    from elmore.elmo import Elmo
    from elmore.embedding.load import ModelPath
    from elmore.embedding.results import LayerChoice
    from elmore.formats.checkpoint import Checkpoint
    from elmore.text.characters import Alphabet
    from elmore.text.reading import Counts, SentenceReader
    from elmore.text.segmenter import Tokenizer
    from elmore.text.sentence import Sentence

__all__ = [
    "ALL_LAYERS",
    "LAYERS",
    "add",
    "add_cache",
    "add_common",
    "add_compute",
    "add_corpus",
    "add_inputs",
    "add_model",
    "add_output",
    "add_seed",
    "cache_bytes",
    "check_words",
    "chosen_model",
    "count_inputs",
    "is_sentence",
    "make_elmo",
    "make_reader",
    "model_and_inputs",
    "parse_count",
    "parse_layers",
    "read_model",
    "read_words",
]

ALL_LAYERS = "all"
LAYERS = "mean, top, a number, or weights w0,w1,w2 (default: %(default)s)"
# Of a first word without --model. Text files have other suffixes, or none.
_MODEL_SUFFIXES = (
    *(".zip", ".tar", ".tgz", ".tar.gz", ".json", ".hdf5", ".h5", ".safetensors"),
    *(".th", ".pt", ".pth", ".pkl", ".index"),
)


# --------------------------------------------------------------------------- values


def parse_layers(text: str) -> LayerChoice | str:
    """Turn `mean`, `top`, `all`, `2` or `0.2,0.3,0.5` into a choice of layers."""
    if text in ("mean", "top", ALL_LAYERS):
        return text
    try:
        return [float(part) for part in text.split(",")] if "," in text else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a choice of layers; use mean, top, all, a number, or w0,w1,w2"
        ) from None


def parse_count(text: str, most: int = 1 << 40) -> int:
    """Turn a word into a number from 1 on."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= most:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to {most}")
    return value


def _parse_cpus(text: str) -> int:
    # Far more than any machine has; without a limit a typo could exhaust the system.
    return parse_count(text, 4096)


def _parse_column(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _parse_model(text: str) -> list[str]:
    return text.split(JOINT)


class _Tokenizers(tuple[str, ...]):
    """The conventions, which are offered and completed, and every "module:function"."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and ":" in name)


# --------------------------------------------------------------------------- flags

_FLAGS: dict[str, dict[str, Any]] = {
    "--batch-tokens": {"type": parse_count, "metavar": "N", "help": "tokens per batch"},
    "--cache": {"metavar": "FOLDER", "help": "keep the layers in this folder for the next run"},
    "--cache-gb": {"type": float, "metavar": "N", "help": "size limit of --cache (default: 17)"},
    "--column": {
        "type": _parse_column,
        "metavar": "NAME|N",
        "help": "CSV or TSV: the column with the text, by its name in the first line, or by its "
        "number from 1 if there are no names",
    },
    "--conllu": {"action": "store_true", "help": "CoNLL-U, which .conllu files are without it"},
    "--debug": {"action": "store_true", "help": "show the traceback of an error"},
    "--device": {"default": "cpu", "metavar": "NAME", "help": "cpu, cuda, cuda:1, mps, ..."},
    "--errors": {
        "choices": ("strict", "replace", "skip"),
        "default": "strict",
        "help": "lines that are not UTF-8: stop with the line number, replace the bad bytes, or "
        "skip the line (default: strict)",
    },
    "--field": {
        "metavar": "NAME",
        "help": "JSON lines: the key of the text, or of a list of tokens",
    },
    "--force": {"action": "store_true", "help": "replace an existing output"},
    "--format": {
        "choices": tuple(WRITERS),
        "help": "output format (default: from the suffix of -o, else jsonl)",
    },
    "--heldout": {
        "type": float,
        "metavar": "SHARE",
        "help": "share of the documents to hold out (default: %(default)s)",
    },
    "--json": {"action": "store_true", "help": "print the report as JSON"},
    "--layers": {
        "type": parse_layers,
        "default": "mean",
        "metavar": "CHOICE",
        "help": f"all, {LAYERS}",
    },
    "--limit": {"type": parse_count, "metavar": "N", "help": "stop after N sentences"},
    "--min-count": {"type": int, "metavar": "N", "help": "leave out words that occur less often"},
    "--model": {
        "type": _parse_model,
        "metavar": "NAME|PATH",
        "help": "a name of `elmore models`, a folder, an archive, a TensorFlow checkpoint, or two "
        "files OPTIONS WEIGHTS (default: english, which is included)",
    },
    "--offline": {"action": "store_true", "help": "never use the network, like ELMORE_OFFLINE=1"},
    "--output": {"metavar": "PATH"},
    "--plot": {"metavar": "PICTURE", "help": "draw it too: svg, png or pdf"},
    "--pool": {
        "choices": get_args(Pooling),
        "help": "one vector per sentence instead of one per token; sif to compare sentences",
    },
    "--precision": {
        "choices": get_args(ComputePrecision),
        "help": "precision of the computation (default: the one the model is stored in); bfloat16 "
        "needs a GPU",
    },
    "--quiet": {"action": "store_true", "help": "print errors only"},
    "--resume": {"action": "store_true", "help": "resume the run in -o"},
    "--seed": {"type": int, "default": 0, "metavar": "N", "help": "random seed (default: 0)"},
    "--seeds": {
        "type": parse_count,
        "default": 1,
        "metavar": "N",
        "help": "train with N seeds and report mean and standard deviation (default: 1)",
    },
    "--split-sentences": {
        "action": "store_true",
        "help": "split running text into sentences (default: one sentence per line)",
    },
    "--start": {
        "choices": ("zeros", "warm"),
        "default": "zeros",
        "help": "LSTM state before each sentence: zeros, or the state after a short text "
        "(default: zeros)",
    },
    "--threads": {"type": _parse_cpus, "metavar": "N", "help": "CPU threads (default: all)"},
    "--tokenized": {"action": "store_true", "help": "lines are tokens separated by spaces"},
    "--tokenizer": {
        "choices": _Tokenizers(CONVENTIONS),
        "metavar": "NAME",
        "help": f"how raw text is split: {', '.join(CONVENTIONS)}, or MODULE:FUNCTION of your own "
        "(default: as the model's training text was)",
    },
    "--top": {"type": int, "metavar": "K", "help": "how many to list (default: %(default)s)"},
    "--vectors": {"metavar": "FILE", "help": "static word vectors: GloVe or word2vec"},
    "--verbose": {"action": "store_true", "help": "print more"},
    "--workers": {
        "type": _parse_cpus,
        "metavar": "N",
        "help": "processes (default: one per CPU)",
    },
}
# The only flags with a short form.
_SHORT = {"--format": "-f", "--output": "-o", "--quiet": "-q", "--verbose": "-v"}


def add(parser: Any, *names: str, **changes: Any) -> None:
    """Add shared flags to a parser or to a group of one.

    Args:
        parser: of a verb or an action.
        names: such as `--seed`.
        changes: what is different here, such as the default or the help.
    """
    for name in names:
        short = [_SHORT[name]] if name in _SHORT else []
        parser.add_argument(*short, name, **{**_FLAGS[name], **changes})


def add_model(parser: Parser, *, positional: bool = False, **changes: Any) -> None:
    """--model and --offline; for verbs about a model also MODEL without the flag."""
    if positional:
        parser.add_argument("model_words", nargs="*", metavar="MODEL", help="the same as --model")
    add(parser, "--model", **changes)
    add(parser, "--offline")


def add_inputs(parser: Parser, *, model_first: bool = False, more: str = "") -> None:
    """INPUT, how it is read, and --limit.

    Args:
        parser: of the verb.
        model_first: the first INPUT may name the model; `model_and_inputs` tells which.
        more: what an INPUT may be besides a file.
    """
    first = "; the first may name the model instead of --model" if model_first else ""
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help=f"UTF-8 text files (plain, gz, bz2, xz, zst){more}; - or none for stdin{first}",
    )
    _add_reading(parser)
    add(parser.add_mutually_exclusive_group(), "--field", "--column", "--conllu")
    add(parser, "--tokenizer", "--limit")


def add_corpus(parser: Parser, number: str) -> None:
    """INPUT and how it is read, for verbs that read complete corpora."""
    parser.add_argument(
        "inputs",
        nargs=number,
        metavar="INPUT",
        help="UTF-8 text files or patterns (plain, gz, bz2, xz, zst); blank lines separate "
        "documents",
    )
    _add_reading(parser)
    add(
        parser,
        "--tokenizer",
        default="ptb",
        help=f"how lines are split: {', '.join(CONVENTIONS)}, or MODULE:FUNCTION of your own "
        "(default: ptb)",
    )
    add(parser, "--workers")


def _add_reading(parser: Parser) -> None:
    add(parser.add_mutually_exclusive_group(), "--tokenized", "--split-sentences")
    add(parser, "--errors")


def add_output(parser: Parser, what: str, *, required: bool = False) -> None:
    """-o and --force."""
    add(parser, "--output", help=what, required=required)
    add(parser, "--force")


def add_compute(parser: Parser, *, batches: bool = True, precision: bool = True) -> None:
    """--device, --threads, --precision and --batch-tokens."""
    add(parser, "--device", "--threads")
    add(parser, *["--precision"] * precision, *["--batch-tokens"] * batches)


def add_cache(parser: Parser) -> None:
    """--cache and --cache-gb."""
    add(parser, "--cache", "--cache-gb")


def add_seed(parser: Parser) -> None:
    """--seed."""
    add(parser, "--seed")


def add_common(parser: Parser, *, json: bool = True) -> None:
    """--json, -q, -v and --debug, which nearly every verb has."""
    add(parser, *["--json"] * json, "--quiet", "--verbose", "--debug")


# --------------------------------------------------------------------------- the model


def chosen_model(args: argparse.Namespace) -> ModelPath:
    """The model of --model or MODEL; the English one if none is named."""
    words: list[str] = getattr(args, "model_words", [])
    if args.model and words:
        raise ConfigError("the model is named twice; leave out MODEL or --model")
    return _model(args, args.model or words)


def model_and_inputs(args: argparse.Namespace) -> tuple[ModelPath, list[str]]:
    """The model, and the inputs without it.

    Without --model, the first word is the model if it looks like one: a folder, a file with the
    suffix of a model, a published name, or a word without suffix that is not a file. A file that
    exists is always read as text, even if a model has the same name.
    """
    inputs: list[str] = args.inputs
    if args.model:  # then every word is text, and nothing is left to guess
        return _model(args, args.model), inputs
    n = model_words(inputs) if inputs and _looks_like_model(inputs[0]) else 0
    if inputs and not n:
        _note_hidden_name(args, inputs[0])
    return _model(args, inputs[:n]), inputs[n:]


def _model(args: argparse.Namespace, words: list[str]) -> ModelPath:
    from elmore.published.catalog import bundled_model

    if not words:
        return bundled_model()
    _note_hidden_name(args, words[0])
    return words[0] if len(words) == 1 else tuple(words)


def _looks_like_model(word: str) -> bool:
    # Not pathlib: it raises for a sentence that is too long for the name of a file.
    if os.path.isdir(word) or os.path.isfile(f"{word}.index"):
        return True
    if word.lower().endswith(_MODEL_SUFFIXES) or word.startswith("hf://"):
        return True
    if word == "-" or os.path.exists(word) or len(word.split()) != 1:
        return False
    # A word without suffix is taken for a misspelt name: that error lists similar ones.
    return _is_published(word) or not os.path.splitext(word)[1]


def _is_published(name: str) -> bool:
    from elmore.published.catalog import INCLUDED, catalog

    return name in INCLUDED or name in catalog()


def _note_hidden_name(args: argparse.Namespace, word: str) -> None:
    """Say so where a file hides a published model: paths always win over names."""
    if not args.quiet and os.path.exists(word) and _is_published(word):
        say(f"note: '{word}' is the file or folder here, not the published model of that name")


def read_model(model: ModelPath) -> Checkpoint:
    """Read a model, without torch.

    Raises:
        FormatError: its files are at fault.
    """
    from elmore.embedding.load import open_model, read_source

    with open_model(model) as source:
        try:
            return read_source(source, model)
        except ConfigError as error:  # a bad value in a file is not a wrong use of ours
            raise FormatError(str(error)) from error


def make_elmo(args: argparse.Namespace, checkpoint: Checkpoint) -> Elmo:
    """Load a model as the flags of `add_compute` and --start say."""
    from elmore.elmo import Elmo

    return Elmo(
        checkpoint,
        device=args.device,
        precision=args.precision,
        threads=args.threads,
        start=args.start,
        # Verbs that read no text have no such flag.
        tokenizer=getattr(args, "tokenizer", None),
    )


# --------------------------------------------------------------------------- the rest


def make_reader(args: argparse.Namespace, elmo: Elmo) -> SentenceReader:
    """Read the inputs of a verb for a model, as the flags of `add_inputs` say."""
    return _reader(args, args.tokenizer or elmo.tokenize, elmo.checkpoint.alphabet)


def is_sentence(word: str) -> bool:
    """Whether an INPUT is text; a misspelt name of a file must not be taken for it."""
    return len(word.split()) > 1 and not os.path.exists(word)


def check_words(args: argparse.Namespace, inputs: list[str]) -> None:
    """Check inputs that are files or sentences before a model is loaded; explain a silence."""
    from elmore.text.reading import check_inputs

    output = getattr(args, "output", None)
    if files := [word for word in inputs or ["-"] if not is_sentence(word)]:
        check_inputs(files, Path(output) if output else None)
    say_waiting(inputs, quiet=args.quiet)


def read_words(reader: SentenceReader, inputs: list[str], counts: Counts) -> Iterator[Sentence]:
    """Read inputs that are files or sentences."""
    for word in inputs or ["-"]:
        if is_sentence(word):
            stream = io.BytesIO(word.encode("utf-8", "surrogateescape"))
            for text in reader.reading.texts(stream, "the argument", counts):
                yield reader.sentence(text, counts)
        else:
            yield from (sentence for _, sentence in reader.read([word], counts))


def count_inputs(args: argparse.Namespace) -> int | None:
    """How many sentences the inputs have, for a progress bar; None if nobody would see it."""
    if args.quiet or sys.stderr is None or not sys.stderr.isatty():
        return None
    # Counting reads the files once more, in a thousandth of the time of embedding them.
    count = _reader(args, "spaces", None).count(args.inputs)
    return count if count is None or args.limit is None else min(count, args.limit)


def _reader(
    args: argparse.Namespace, tokenizer: Tokenizer, alphabet: Alphabet | None
) -> SentenceReader:
    from elmore.text.reading import Reading, SentenceReader
    from elmore.text.records import Records

    reading = Reading(
        tokenized=args.tokenized,
        split_sentences=args.split_sentences,
        tokenizer=tokenizer,
        errors=args.errors,
    )
    records = Records(field=args.field, column=args.column, conllu=args.conllu)
    return SentenceReader(reading, alphabet, records)


def cache_bytes(args: argparse.Namespace) -> int:
    """The size that --cache-gb allows."""
    from elmore.embedding.layer_cache import MAX_BYTES

    if args.cache_gb is None:
        return MAX_BYTES
    if not args.cache_gb > 0:
        raise ConfigError(f"--cache-gb {args.cache_gb:g} leaves no space; use more than 0")
    return max(1, int(args.cache_gb * 1e9))

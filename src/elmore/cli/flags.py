"""Every flag that verbs share, defined once: same name, same meaning."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from elmore._progress import Progress
from elmore.cli.report import make_progress
from elmore.config import Precision
from elmore.embedding.writers import WRITERS
from elmore.errors import ConfigError, FormatError
from elmore.text.tokenizer import CONVENTIONS

if TYPE_CHECKING:
    from elmore.embedding.elmo import Elmo
    from elmore.embedding.layers import LayerChoice
    from elmore.formats.checkpoint import Checkpoint
    from elmore.formats.detect import ModelPath
    from elmore.text.reading import SentenceReader

__all__ = [
    "ALL_LAYERS",
    "add_common",
    "add_compute",
    "add_corpus",
    "add_format",
    "add_inputs",
    "add_json",
    "add_layers",
    "add_model",
    "add_model_argument",
    "add_offline",
    "add_output",
    "add_seed",
    "add_start",
    "add_workers",
    "default_model",
    "make_elmo",
    "make_reader",
    "model_path",
    "parse_count",
    "parse_layers",
    "read_model",
    "split_model",
]

ALL_LAYERS = "all"
_MODEL = "a name, a folder, an archive, a TensorFlow checkpoint, or the files OPTIONS WEIGHTS"
_DEFAULT = " (default: the English model inside the package)"
_MOST_THREADS = _MOST_WORKERS = 4096
Parser = argparse.ArgumentParser


def default_model() -> ModelPath:
    """Give the model that is used when none is named: the bundled one."""
    from elmore.published.catalog import bundled_model

    return bundled_model()


# --------------------------------------------------------------------------- flags


def add_model(parser: Parser, what: str = _MODEL + _DEFAULT) -> None:
    """--model and --offline."""
    parser.add_argument("--model", nargs="+", metavar="PATH", help=what)
    add_offline(parser)


def add_model_argument(parser: Parser, *, required: bool = True) -> None:
    """MODEL, for verbs whose subject it is, and --offline."""
    parser.add_argument(
        "model",
        nargs="+" if required else "*",
        metavar="MODEL",
        help=_MODEL if required else _MODEL + _DEFAULT,
    )
    add_offline(parser)


def add_offline(parser: Parser) -> None:
    """--offline; `cli/main.py` sees to it."""
    parser.add_argument(
        "--offline",
        action="store_true",
        help="never touch the network (as ELMORE_OFFLINE=1); downloads live in ELMORE_HOME",
    )


def add_inputs(parser: Parser) -> None:
    """INPUT, how it is read, and --limit."""
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help="UTF-8 text; plain, gz, bz2, xz or zst; - or none for stdin",
    )
    _add_reading(parser, "paragraphs")
    parser.add_argument("--limit", type=parse_count, metavar="N", help="stop after N sentences")


def add_corpus(parser: Parser, number: str) -> None:
    """INPUT and how it is read, for verbs that read whole corpora."""
    parser.add_argument(
        "inputs",
        nargs=number,
        metavar="INPUT",
        help="UTF-8 text files or patterns; plain, gz, bz2, xz or zst",
    )
    _add_reading(parser, "documents")
    parser.add_argument(
        "--tokenizer",
        choices=CONVENTIONS,
        default="ptb",
        help="how lines are tokenized (default: ptb)",
    )
    add_workers(parser, "processes to use (default: all processors)")


def add_workers(parser: Parser, what: str) -> None:
    """--workers."""
    parser.add_argument("--workers", type=_workers, metavar="N", help=what)


def _add_reading(parser: Parser, parts: str) -> None:
    """--tokenized, --split-sentences and --errors."""
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--tokenized", action="store_true", help="lines are tokens separated by spaces"
    )
    kind.add_argument(
        "--split-sentences",
        action="store_true",
        help=f"input is running text, a blank line between {parts} (default: a sentence a line)",
    )
    parser.add_argument(
        "--errors",
        choices=("strict", "replace", "skip"),
        default="strict",
        help="what to do with lines that are not UTF-8 (default: stop with the line number)",
    )


def add_seed(parser: Parser) -> None:
    """--seed."""
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="the one seed (default: 0)"
    )


def add_output(parser: Parser, what: str, *, required: bool = False) -> None:
    """-o and --force."""
    parser.add_argument("-o", "--output", metavar="PATH", required=required, help=what)
    parser.add_argument("--force", action="store_true", help="replace an output that exists")


def add_format(parser: Parser) -> None:
    """-f."""
    parser.add_argument(
        "-f",
        "--format",
        choices=tuple(WRITERS),
        help="output format (default: from the suffix of -o, else jsonl)",
    )


def add_layers(parser: Parser) -> None:
    """--layers and --pool."""
    parser.add_argument(
        "--layers",
        type=parse_layers,
        default="mean",
        metavar="CHOICE",
        help="mean, top, all, a number, or weights w0,w1,w2 (default: mean)",
    )
    parser.add_argument(
        "--pool",
        choices=("mean", "max", "first", "last"),
        help="one vector a sentence instead of one a token",
    )


def add_compute(parser: Parser, *, batches: bool = True, precision: bool = True) -> None:
    """--device, --threads, --precision and --batch-tokens."""
    parser.add_argument("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1, ...")
    parser.add_argument(
        "--threads", type=_threads, metavar="N", help="processors to use (default: all)"
    )
    if precision:
        parser.add_argument(
            "--precision",
            choices=get_args(Precision),
            help="how to compute (default: as the model is stored)",
        )
    if batches:
        parser.add_argument(
            "--batch-tokens", type=parse_count, metavar="N", help="token budget of a batch"
        )


def add_cache(parser: Parser) -> None:
    """--cache and --cache-gb."""
    parser.add_argument("--cache", metavar="FOLDER", help="keep the layers there for next time")
    parser.add_argument(
        "--cache-gb", type=float, metavar="N", help="what the cache may hold (default: 17)"
    )


def cache_bytes(args: argparse.Namespace) -> int:
    """Give what --cache-gb allows."""
    from elmore.embedding.layer_cache import MAX_BYTES

    if args.cache_gb is None:
        return MAX_BYTES
    if not args.cache_gb > 0:
        raise ConfigError(f"--cache-gb {args.cache_gb:g} leaves no room; use more than 0")
    return max(1, int(args.cache_gb * 1e9))


def add_start(parser: Parser) -> None:
    """--start."""
    parser.add_argument(
        "--start",
        choices=("zeros", "warm"),
        default="zeros",
        help="state before each sentence: zeros, or warm, after a short text (default: zeros)",
    )


def add_json(parser: Parser) -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help="report as JSON on stdout")


def add_common(parser: Parser) -> None:
    """-q, -v and --debug."""
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    parser.add_argument("-v", "--verbose", action="store_true", help="say more")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


# --------------------------------------------------------------------------- values


def parse_layers(text: str) -> LayerChoice | str:
    """Turn `mean`, `top`, `all`, `2` or `0.2,0.3,0.5` into a choice of layers."""
    if text in ("mean", "top", ALL_LAYERS):
        return text
    try:
        return [float(part) for part in text.split(",")] if "," in text else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no choice; use mean, top, all, a number, or w0,w1,w2"
        ) from None


def parse_count(text: str, most: int = 1 << 40) -> int:
    """Turn a word into a number from 1 on."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= most:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 to {most}")
    return value


def _workers(text: str) -> int:
    return parse_count(text, _MOST_WORKERS)


def _threads(text: str) -> int:
    return parse_count(text, _MOST_THREADS)


def split_model(values: list[str] | None) -> tuple[ModelPath, list[str]]:
    """Tell the files of a model from the inputs that follow them.

    `--model PATH` takes a second word only where options and weights are named one by one;
    otherwise the words after the first are inputs: `--model my-model text.txt`.

    Returns:
        the model, the default one if none was named, and the words left.
    """
    if not values:
        return default_model(), []
    if len(values) > 1:
        kinds = [Path(value).suffix.lower() for value in values[:2]]
        tensorflow = kinds[1] == ".index" or Path(f"{values[1]}.index").is_file()
        if ".json" in kinds and ({".hdf5", ".h5"} & set(kinds) or tensorflow):
            return tuple(values[:2]), values[2:]
    return values[0], values[1:]


def model_path(values: list[str]) -> ModelPath:
    """Read the argument MODEL of one to four words; the default one for none."""
    if not values:
        return default_model()
    return values[0] if len(values) == 1 else tuple(values)


def read_model(model: ModelPath) -> Checkpoint:
    """Read a model, without torch.

    Raises:
        FormatError: its files are at fault.
    """
    from elmore.formats.detect import detect, open_model

    with open_model(model, reporting=_report_download) as source:
        try:
            return detect(source).read(source)
        except ConfigError as error:  # a bad value in a file is no wrong use of ours
            raise FormatError(str(error)) from error


def _report_download(name: str, size: int | None) -> Progress:
    """Show how a download goes on."""
    # --quiet has raised the level of the log, which is known here while the arguments are not.
    quiet = not logging.getLogger("elmore").isEnabledFor(logging.WARNING)
    return make_progress(unit="B", total=size, quiet=quiet, what=name)


def make_elmo(args: argparse.Namespace, checkpoint: Checkpoint) -> Elmo:
    """Load a model that was read, as the flags of `add_compute` and `add_start` say."""
    from elmore.embedding.elmo import Elmo

    return Elmo(
        checkpoint,
        device=args.device,
        precision=args.precision,
        threads=args.threads,
        start=args.start,
    )


def make_reader(args: argparse.Namespace, elmo: Elmo) -> SentenceReader:
    """Read the inputs of a verb for a model, as the flags of `add_inputs` say."""
    from elmore.text.reading import Reading, SentenceReader

    reading = Reading(
        tokenized=args.tokenized,
        split_sentences=args.split_sentences,
        tokenizer=elmo.checkpoint.tokenizer,
        errors=args.errors,
    )
    return SentenceReader(reading, elmo.checkpoint.alphabet)

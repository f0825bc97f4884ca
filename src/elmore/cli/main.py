"""The command line: picks the verb, runs it, and reports errors in one line.

Exit codes: 0 done, 1 failed while running, 2 wrong usage. An interrupt ends the process by its
signal; a closed stdout ends it quietly. A new verb needs one line in `VERBS` and one file, see
flags.py.
"""

from __future__ import annotations

import _thread
import argparse
import contextlib
import importlib
import logging
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import NoReturn, Protocol, TextIO, cast

from elmore._version import __version__
from elmore.base.messages import shown
from elmore.base.optional import missing_extra
from elmore.cli.parsing import Parser, nearest
from elmore.cli.report import one_line, say
from elmore.errors import ConfigError, ElmoreError

__all__ = ["VERBS", "Verb", "main"]

# The module of a verb is imported only when the verb is used: help must not wait for h5py. The
# order is that of `elmore --help`.
VERBS: dict[str, tuple[str, str]] = {
    "embed": ("elmore.cli.embed", "vectors for text"),
    "check": ("elmore.cli.check", "whether a text fits a model, and what embedding it costs"),
    "info": ("elmore.cli.info", "what a model is; --system describes the machine"),
    "convert": ("elmore.cli.convert", "convert a model into another format or precision"),
    "models": ("elmore.cli.models", "list published models and delete downloads"),
    "cache": ("elmore.cli.cache", "compute the token vectors of a vocabulary once, for a file"),
    "centroids": ("elmore.cli.centroids", "one vector per word or sense, averaged over a text"),
    "index": ("elmore.cli.index", "index the uses of words in a corpus, with their sense vectors"),
    "find": ("elmore.cli.find", "the uses of a word that are most similar to a given one"),
    "senses": ("elmore.cli.senses", "the uses of words, grouped by sense"),
    "change": ("elmore.cli.change", "words that two corpora use differently"),
    "prepare": ("elmore.cli.prepare", "turn text files into shards and a vocabulary to train on"),
    "vocab": ("elmore.cli.vocab", "make a vocabulary from text, or inspect one"),
    "recipes": ("elmore.cli.recipes", "list or show training recipes"),
    "plan": ("elmore.cli.plan", "what a training run will cost and bring"),
    "pretrain": ("elmore.cli.pretrain", "train a biLM on prepared text"),
    "fine-tune": ("elmore.cli.fine_tune", "adapt a biLM to your text"),
    "plot": ("elmore.cli.plot", "draw the training curves of a run"),
    "perplexity": ("elmore.cli.perplexity", "how well a model predicts text, in both directions"),
    "score": ("elmore.cli.score", "log probabilities of sentences and tokens; likely words"),
    "tag": ("elmore.cli.tag", "label words: parts of speech, phrases, or your own tags"),
    "classify": ("elmore.cli.classify", "label texts: sentiment, or your own classes"),
    "task": ("elmore.cli.task", "train and evaluate taggers, classifiers and the paper's tasks"),
    "analyze": ("elmore.cli.analyze", "the paper's analyses: probes of layers, studies of tasks"),
    "explore": ("elmore.cli.explore", "compare a word in several contexts, in the terminal"),
    "serve": ("elmore.cli.serve", "HTTP service with a demo page"),
    "doctor": ("elmore.cli.doctor", "what works on this machine, and what does not"),
}


class Verb(Protocol):
    """What a module needs to be in `VERBS`."""

    EXAMPLES: str

    def add_arguments(self, parser: Parser) -> None:
        """Declare its arguments, or its actions with theirs."""

    def run(self, args: argparse.Namespace) -> int:
        """Do the work; returns the exit code."""


class _Terminated(BaseException):
    """SIGTERM was received. It runs every `finally`, like KeyboardInterrupt."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; `argv` is without the name of the program."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments  # needed before the arguments are parsed
    try:
        with _terminable():
            code = _dispatch(arguments)
            if sys.stdout is not None:
                sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        return _end_by(signal.SIGINT)
    except _Terminated:
        return _end_by(signal.SIGTERM)
    except BrokenPipeError:
        _drop_stdout()
        return 0  # the reader, such as `head`, has seen enough
    except ConfigError as error:
        return _fail(error, str(error), 2, debug)
    except ElmoreError as error:
        return _fail(error, str(error), 1, debug)
    except MemoryError as error:
        return _fail(error, "out of memory; lower --batch-tokens or shorten the lines", 1, debug)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        where = f"'{error.filename}': " if error.filename else ""
        _drop_stdout()  # or Python would try to write the rest again at exit
        return _fail(error, f"{where}{reason}; check the path, its rights and the disk", 1, debug)
    except Exception as error:
        what = f"unexpected {type(error).__name__}: {error}; run again with --debug and report it"
        return _fail(error, what, 1, debug)


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        raise ConfigError(f"name a verb: one of {', '.join(VERBS)}, or `elmore --help`")
    name = arguments[0]
    if name in ("-h", "--help"):
        print(_help())
        return 0
    if name == "--version":
        print(f"elmore {__version__}")
        return 0
    if name == "--completion":
        from elmore.cli.completion import completion_script

        print(completion_script(arguments[1:], VERBS), end="")
        return 0
    if name not in VERBS:
        known = [*VERBS, "--help", "--version", "--completion"]
        what = "flag" if name.startswith("-") else "verb"
        hint = nearest(name, known) or f"use one of {', '.join(VERBS)}"
        raise ConfigError(f"unknown {what} '{shown(name, 60)}'; {hint}")
    module, summary = VERBS[name]
    verb = cast(Verb, importlib.import_module(module))
    parser = Parser(prog=f"elmore {name}", summary=summary, examples=verb.EXAMPLES)
    verb.add_arguments(parser)
    try:
        args = parser.parse(arguments[1:])
    except SystemExit:  # --help was printed
        return 0
    with _reporting(args), _offline(args):
        try:
            return verb.run(args)
        except ModuleNotFoundError as error:
            # Only training needs torch; whoever lacks it gets the name of the extra.
            if error.name != "torch":
                raise
            raise missing_extra("torch", "torch", f"elmore {name}") from None


def _help() -> str:
    lines = [
        "usage: elmore VERB [INPUT ...] [--model NAME|PATH] [--flags]",
        "",
        "A maintained, fast ELMo: contextual word vectors.",
        "",
        "verbs:",
        *(f"  {name:<12}{summary}" for name, (_, summary) in VERBS.items()),
        "",
        "flags:",
        "  -h, --help  this text; `elmore VERB --help` explains a verb",
        "  --version   the version",
        "  --completion bash|zsh|fish   a script that lets Tab complete verbs, flags and files",
        "",
        "examples:",
        '  echo "A plant grew ." | elmore embed',
        '  elmore tag "Ada lives in Rome."',
        '  elmore score "A plant grew ."',
        "  elmore info english",
    ]
    return "\n".join(lines)


@contextlib.contextmanager
def _reporting(args: argparse.Namespace) -> Iterator[None]:
    """Show the log and warnings on stderr, as -v and -q say."""
    quiet, verbose = getattr(args, "quiet", False), getattr(args, "verbose", False)
    logger = logging.getLogger("elmore")
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR if quiet else logging.INFO if verbose else logging.WARNING)

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not quiet:
            say(f"elmore: warning: {one_line(message)}")

    try:
        with warnings.catch_warnings():
            # Only warnings for users. Deprecations are for developers, who see them in the tests.
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = show
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextlib.contextmanager
def _offline(args: argparse.Namespace) -> Iterator[None]:
    """Forbid the network while a verb runs, for child processes too: hence the environment."""
    if not getattr(args, "offline", False):
        yield
        return
    before = os.environ.get("ELMORE_OFFLINE")
    os.environ["ELMORE_OFFLINE"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["ELMORE_OFFLINE"]
        else:
            os.environ["ELMORE_OFFLINE"] = before


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"elmore: {record.levelname.lower()}: {one_line(record.getMessage())}"


def _fail(error: BaseException, message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    say(f"elmore: error: {one_line(message)}")
    for note in getattr(error, "__notes__", ()):  # such as full addresses, which need lines
        say(note)
    return code


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that unfinished files are removed."""
    before_hook = sys.unraisablehook

    def stop(*_: object) -> NoReturn:
        raise _Terminated

    def again(dropped: sys.UnraisableHookArgs) -> None:
        """Send a signal again if Python dropped its exception, as it does in a destructor."""
        numbers = {KeyboardInterrupt: signal.SIGINT, _Terminated: signal.SIGTERM}
        number = numbers.get(dropped.exc_type)
        if number is None:
            before_hook(dropped)
            return
        # Not `threading.Thread`: its start waits, and the signal would be dropped in that wait.
        _thread.start_new_thread(_send_later, (number,))

    if threading.current_thread() is not threading.main_thread():
        yield  # Python allows signal handlers in the main thread only
        return
    before = signal.signal(signal.SIGTERM, stop)
    # This happens with h5py, which runs a weak-reference callback for each dataset.
    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before_hook
        signal.signal(signal.SIGTERM, before)


def _send_later(number: signal.Signals) -> None:
    time.sleep(0.02)  # by then the destructor has finished
    if sys.platform == "win32":  # os.kill would end the process there without any handler
        _thread.interrupt_main(number)
    else:
        os.kill(os.getpid(), number)


def _end_by(number: signal.Signals) -> int:
    """End by the signal itself: a shell then sees it and stops its loop."""
    _drop_stdout()
    if sys.platform != "win32":  # where no process ends by a signal
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return 128 + number


def _drop_stdout() -> None:
    """Discard what is left in the buffer of stdout; flushing it at exit would fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)

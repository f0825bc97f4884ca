"""The door: which verb, what went wrong, how it ends.

Exit codes: 0 done, 1 failed while running, 2 wrong usage. An interrupt ends by its signal, a
closed stdout ends quietly.
"""

from __future__ import annotations

import _thread
import argparse
import contextlib
import difflib
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

from elmore._extras import missing_extra
from elmore._messages import shown
from elmore._version import __version__
from elmore.cli.report import one_line, say
from elmore.errors import ConfigError, ElmoreError

__all__ = ["VERBS", "Verb", "main"]

# The module of a verb is imported only when the verb is used: help must not wait for h5py.
VERBS: dict[str, tuple[str, str]] = {
    "embed": ("elmore.cli.embed", "vectors for text"),
    "info": ("elmore.cli.info", "what a model is; --system for the machine"),
    "convert": ("elmore.cli.convert", "any format into any that can be written"),
    "models": ("elmore.cli.models", "published models: size, licence, what is downloaded"),
    "cache": ("elmore.cli.cache", "token vectors of a vocabulary, computed once"),
    "centroids": ("elmore.cli.centroids", "a vector a word or sense, averaged over a text"),
    "prepare": ("elmore.cli.prepare", "text files into shards and a vocabulary to train on"),
    "vocab": ("elmore.cli.vocab", "count, cut and inspect a vocabulary"),
    "recipes": ("elmore.cli.recipes", "list, show or copy training recipes"),
    "pretrain": ("elmore.cli.pretrain", "train a biLM on prepared text"),
    "fine-tune": ("elmore.cli.fine_tune", "adapt a biLM to other text"),
    "plot": ("elmore.cli.plot", "the curves of a run as a picture"),
    "perplexity": ("elmore.cli.perplexity", "how well a model predicts text, in both directions"),
    "score": ("elmore.cli.score", "log probabilities of sentences and tokens; likely words"),
    "task": ("elmore.cli.task", "train, evaluate and use models of the paper's six tasks"),
    "analyze": (
        "elmore.cli.analyze",
        "the analyses of the paper: probes of layers, studies of tasks",
    ),
    "explore": ("elmore.cli.explore", "a word in several contexts, compared in the terminal"),
    "serve": ("elmore.cli.serve", "a service over HTTP, with a page to play with"),
}


class Verb(Protocol):
    """What a module must offer to be a line of `VERBS`."""

    EXAMPLES: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do the work and give the exit code."""


class _Terminated(BaseException):
    """SIGTERM came: leave through every `finally`, as an interrupt does."""


class _Parser(argparse.ArgumentParser):
    """Raises where argparse prints its usage and exits."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments without the program's name; those of the process by default.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
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
        return 0  # the reader had enough
    except ConfigError as error:
        return _fail(error, str(error), 2, debug)
    except ElmoreError as error:
        return _fail(error, str(error), 1, debug)
    except MemoryError as error:
        return _fail(error, "out of memory; lower --batch-tokens or shorten the lines", 1, debug)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        where = f"'{error.filename}': " if error.filename else ""
        _drop_stdout()  # what could not be written must not be tried again at exit
        return _fail(error, f"{where}{reason}; check the path, its rights and the disk", 1, debug)
    except Exception as error:
        what = f"unexpected {type(error).__name__}: {error}; run again with --debug and report it"
        return _fail(error, what, 1, debug)


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        raise ConfigError(f"no verb; use one of {', '.join(VERBS)}, or `elmore --help`")
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
        hint = _nearest(name, known) or f"use one of {', '.join(VERBS)}"
        raise ConfigError(f"unknown {what} '{shown(name, 60)}'; {hint}")
    module, summary = VERBS[name]
    verb = cast(Verb, importlib.import_module(module))
    parser = _Parser(
        prog=f"elmore {name}",
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"examples:\n{verb.EXAMPLES.rstrip()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.add_arguments(parser)
    try:
        args, unknown = parser.parse_known_intermixed_args(_without_dashes(arguments[1:]))
    except SystemExit:  # --help was printed
        return 0
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = [option for action in parser._actions for option in action.option_strings]
        near = _nearest(flag, known)
        hint = near if flag.startswith("-") and near else f"see `elmore {name} --help`"
        raise ConfigError(f"unknown argument '{shown(unknown[0], 60)}' of {name}; {hint}")
    with _reporting(args), _offline(args):
        try:
            return verb.run(args)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise missing_extra("torch", "torch", f"elmore {name}") from None


def _help() -> str:
    lines = [
        "usage: elmore VERB [INPUT ...] [--model MODEL] [--flags]",
        "",
        "A maintained, fast ELMo: contextual word vectors.",
        "",
        "verbs:",
        *(f"  {name:<12}{summary}" for name, (_, summary) in VERBS.items()),
        "",
        "flags:",
        "  -h, --help  this text; `elmore VERB --help` for a verb",
        "  --version   the version",
        "  --completion bash|zsh|fish   a script that lets Tab complete verbs, flags and files",
        "",
        "examples:",
        '  echo "A plant grew ." | elmore embed --model my-model',
        "  elmore info my-model",
    ]
    return "\n".join(lines)


def _nearest(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1, 0.5)
    return f"did you mean {near[0]}?" if near else ""


def _without_dashes(arguments: list[str]) -> list[str]:
    """Resolve `--`: what follows is no flag, and as every argument is a path, ./-x is -x."""
    if "--" not in arguments:
        return arguments
    at = arguments.index("--")
    return arguments[:at] + [
        f"./{name}" if name.startswith("-") and name != "-" else name
        for name in arguments[at + 1 :]
    ]


@contextlib.contextmanager
def _reporting(args: argparse.Namespace) -> Iterator[None]:
    """Show the log and warnings on stderr, in the measure of -v and -q."""
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
            # Those for users; the rest of Python's are for developers, who see them in the tests.
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = show
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextlib.contextmanager
def _offline(args: argparse.Namespace) -> Iterator[None]:
    """Forbid the network to this process and its children for as long as a verb runs."""
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
    return code


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that unfinished files are removed."""
    before_hook = sys.unraisablehook

    def stop(*_: object) -> NoReturn:
        raise _Terminated

    def again(dropped: sys.UnraisableHookArgs) -> None:
        """Send a signal once more whose exception met a destructor, where Python drops it."""
        numbers = {KeyboardInterrupt: signal.SIGINT, _Terminated: signal.SIGTERM}
        number = numbers.get(dropped.exc_type)
        if number is None:
            before_hook(dropped)
            return
        # A `threading.Thread` waits until it runs, and the signal would find that wait: dropped.
        _thread.start_new_thread(_send_later, (number,))

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may listen
        return
    before = signal.signal(signal.SIGTERM, stop)
    # Seen with h5py, which runs a callback of a weak reference for each dataset.
    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before_hook
        signal.signal(signal.SIGTERM, before)


def _send_later(number: signal.Signals) -> None:
    time.sleep(0.02)  # by then the destructor has ended
    os.kill(os.getpid(), number)


def _end_by(number: signal.Signals) -> int:
    """End as if the signal had never been caught: a shell then sees it and stops its loop."""
    _drop_stdout()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number  # where a signal does not end a process


def _drop_stdout() -> None:
    """Send what is left in stdout's buffer nowhere; flushing it at exit would fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)

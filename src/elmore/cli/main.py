"""The command line: picks the verb, runs it, and reports errors in one line.

Exit codes: 0 done, 1 failed while running, 2 wrong usage. On SIGINT and SIGTERM elmore ends by that
signal; a closed stdout ends it quietly. A new verb is one line in `VERBS` and one command in a file
of this folder; options.py has the options that verbs share.
"""

from __future__ import annotations

import _thread
import contextlib
import difflib
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

import click

from elmore._version import __version__
from elmore.base.messages import say, shown
from elmore.base.optional import missing_extra
from elmore.cli.console import one_line
from elmore.errors import ConfigError, ElmoreError, Stopped

# Headings of `elmore --help`, with the verbs below them and what each does.
VERBS: dict[str, dict[str, str]] = {
    "Vectors": {
        "embed": "vectors for text",
        "words": "static word vectors, of a vocabulary or averaged over a corpus",
    },
    "Language model": {
        "score": "probabilities of sentences and tokens; likely words; perplexity",
    },
    "Senses": {
        "index": "index the uses of words in a corpus, with their sense vectors",
        "find": "the uses of a word that are most similar to a given one",
        "senses": "the uses of words, grouped by sense",
        "frequencies": "how often words occur in a corpus, and how evenly",
        "collocates": "the words near a word, or near one of its senses",
        "change": "words that corpora use differently, or that change over time",
        "explore": "compare a word in several contexts, in the terminal",
    },
    "Labels": {
        "train": "train a tagger, a classifier or one of the paper's tasks",
        "evaluate": "score a trained model on labelled files",
        "predict": "label text with a trained model, such as pos or sentiment",
    },
    "Training language models": {
        "prepare": "turn text files into shards and a vocabulary to train on",
        "pretrain": "train a biLM on prepared text",
        "fine-tune": "adapt a biLM to your text",
    },
    "Models and system": {
        "models": "list published models and delete downloads",
        "info": "describe a model, a trained task, an index or prepared text",
        "convert": "convert a model into another format or precision",
        "serve": "HTTP service with a demo page",
        "analyze": "the paper's analyses: probes of layers, studies of tasks",
        "doctor": "what works on this machine, and what does not",
    },
}
# Verbs that share a file with another one.
_FILES = {
    **dict.fromkeys(("index", "find", "frequencies", "collocates", "change"), "senses"),
    **dict.fromkeys(("evaluate", "predict"), "train"),
    **dict.fromkeys(("prepare", "fine-tune"), "pretrain"),
    **dict.fromkeys(("info", "convert"), "models"),
    "words": "embed",
}
# An option is suggested if it is this similar to what was typed.
_SIMILAR = 0.7


class _Verbs(click.Group):
    """Imports a verb only when it is used: help must not wait for numpy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for verbs in VERBS.values() for name in verbs]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            near = difflib.get_close_matches(name, self.list_commands(ctx), 1)
            if near and not ctx.resilient_parsing:  # click before 8.4 suggests no commands
                ctx.fail(f"no such command '{shown(name, 40)}'; did you mean {near[0]}?")
            return None
        file, function = _FILES.get(name, name).replace("-", "_"), name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"elmore.cli.{file}"), function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        wide = max(map(len, self.list_commands(ctx)))
        for heading, verbs in VERBS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(wide), what) for name, what in verbs.items()])


@click.command(
    "elmore",
    cls=_Verbs,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
        "auto_envvar_prefix": "ELMORE",
    },
    epilog="""\b
examples:
  elmore embed "A plant grew ."
  elmore predict pos "Ada lives in Rome."
  elmore score "A plant grew ."
  elmore info english

\b
`elmore VERB --help` explains a verb. Tab completes verbs and flags after
  eval "$(_ELMORE_COMPLETE=bash_source elmore)"      (also zsh_source, fish_source)
""",
)
@click.version_option(__version__, prog_name="elmore", message="%(prog)s %(version)s")
def cli() -> None:
    """A maintained, fast ELMo: contextual word vectors."""


class _Terminated(BaseException):
    """SIGTERM was received. It runs every `finally`, like KeyboardInterrupt."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; `argv` is without the name of the program."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments  # needed before the arguments are parsed
    if "_ELMORE_COMPLETE" in os.environ:
        cli.main(prog_name="elmore")  # answers the shell and exits
    try:
        with _terminable():
            _run(arguments)
            if sys.stdout is not None:
                sys.stdout.flush()
            return 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except Stopped as stopped:  # it saved everything
        say(f"elmore: {stopped} with --resume")
        return _end_by(stopped.number)
    except KeyboardInterrupt:
        return _end_by(signal.SIGINT)
    except _Terminated:
        return _end_by(signal.SIGTERM)
    except BrokenPipeError:
        _drop_stdout()
        return 0  # the reader, such as `head`, has seen enough
    except click.UsageError as error:
        return _fail(error, _usage(error), 2, debug)
    except ElmoreError as error:
        return _fail(error, str(error), 2 if isinstance(error, ConfigError) else 1, debug)
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


def _run(arguments: list[str]) -> None:
    # Not `cli.main`, which takes care of signals and errors in its own way.
    with cli.make_context("elmore", arguments or ["--help"]) as context:
        try:
            cli.invoke(context)
        except ModuleNotFoundError as error:
            # Only training needs torch; whoever lacks it gets the name of the extra.
            if error.name != "torch":
                raise
            verb = f"elmore {context.invoked_subcommand}"
            raise missing_extra("torch", "torch", verb) from None


def _usage(error: click.UsageError) -> str:
    """What is wrong in the words of click, and where the help is."""
    command = error.ctx.command_path if error.ctx else "elmore"
    if isinstance(error, click.NoSuchOption):  # click also suggests what is hardly similar
        known = error.possibilities or ()
        similar = difflib.get_close_matches(error.option_name, known, 1, _SIMILAR)
        error = click.NoSuchOption(error.option_name, possibilities=similar)
    message = " ".join(error.format_message().split()).rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; see `{command} --help`"


def _fail(error: BaseException, message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    say(f"elmore: error: {one_line(message)}")
    for note in getattr(error, "__notes__", ()):  # such as full addresses, which need lines
        say(note)
    return code


# --------------------------------------------------------------------------- signals


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


def _end_by(number: int) -> int:
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

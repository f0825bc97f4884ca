"""The parser of a verb, or of one action of a verb: argparse with errors of one line."""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from elmore.base.messages import shown
from elmore.errors import ConfigError

__all__ = ["JOINT", "Parser", "model_words", "nearest"]

JOINT = "\0"


class Parser(argparse.ArgumentParser):
    """Parses the arguments of `elmore VERB`, or of `elmore VERB ACTION`.

    Args:
        prog: the words before the arguments, such as `elmore task train`.
        summary: one line that says what it does.
        examples: shown at the end of the help.
        siblings: all actions of the verb, if this is the parser of one.
    """

    def __init__(
        self,
        *,
        prog: str,
        summary: str,
        examples: str,
        siblings: dict[str, Parser] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            prog=prog,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"examples:\n{examples.rstrip()}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **options,  # what newer versions of argparse hand on to subparsers
        )
        self._siblings = {} if siblings is None else siblings
        self._choices: dict[str, Parser] = {}
        self._subparsers_action: Any = None
        self._default = ""

    def add_action(
        self, name: str, summary: str, examples: str, *, default: bool = False
    ) -> Parser:
        """Add an action with its own flags and help; it is in `args.action` afterwards.

        Args:
            name: the word on the command line.
            summary: one line that says what it does.
            examples: shown at the end of its help.
            default: whether it is meant when no action is named.
        """
        if self._subparsers_action is None:
            self._subparsers_action = self.add_subparsers(
                title="actions", metavar="ACTION", required=not default
            )
        action: Parser = self._subparsers_action.add_parser(
            name, help=summary, summary=summary, examples=examples, siblings=self._choices
        )
        action.set_defaults(action=name)
        self._choices[name] = action
        self._default = name if default else self._default
        return action

    def error(self, message: str) -> NoReturn:
        """Raise, where argparse prints its usage and exits."""
        raise ConfigError(f"{message}; see `{self.prog} --help`")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse; flags and inputs may come in any order.

        Raises:
            ConfigError: something is missing, unknown or wrong.
            SystemExit: --help was printed.
        """
        if self._choices:
            name, rest = self._pick(arguments)
            return self._choices[name].parse(rest)
        # argparse's own subparsers do not mix flags and inputs, so the parser of the action is
        # called directly.
        arguments = _join_model(_without_dashes(arguments))
        args, unknown = self.parse_known_intermixed_args(arguments)
        if unknown:
            self._refuse(unknown[0])
        return args

    def _pick(self, arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
        """The action, and the arguments without it. Flags may come before the action."""
        # Otherwise a misspelt action could hide behind an input with the name of another one.
        if arguments and arguments[0].startswith("-"):
            places = [k for k, word in enumerate(arguments) if word in self._choices]
        else:
            places = [0] if arguments and arguments[0] in self._choices else []
        if places:
            k = places[0]
            return arguments[k], [*arguments[:k], *arguments[k + 1 :]]
        asks = {"-h", "--help"} & set(arguments)
        if not self._default or asks or any(word[:1] != "-" for word in arguments):
            self.parse_args(arguments)  # prints the help, or says what is wrong with the action
        return self._default, arguments

    def _refuse(self, word: str) -> NoReturn:
        flag, name = word.partition("=")[0], self.prog.removeprefix("elmore ")
        # A flag of another action is more likely than a typo.
        owners = [key for key, action in self._siblings.items() if action.knows(flag)]
        if owners:
            action = name.rpartition(" ")[2]
            raise ConfigError(f"{flag} is for {', '.join(owners)}; leave it out for {action}")
        near = nearest(flag, list(self._option_string_actions)) if flag.startswith("-") else ""
        hint = near or f"see `{self.prog} --help`"
        raise ConfigError(f"unknown argument '{shown(word, 60)}' of {name}; {hint}")

    def knows(self, flag: str) -> bool:
        """Whether it has this flag."""
        return flag in self._option_string_actions


def nearest(word: str, known: Sequence[str]) -> str:
    """Guess what was meant; empty if nothing is similar."""
    near = difflib.get_close_matches(word, known, 1, 0.5)
    return f"did you mean {near[0]}?" if near else ""


def model_words(words: Sequence[str]) -> int:
    """How many of the first words name the model: two if they are OPTIONS WEIGHTS, else one."""
    if len(words) < 2:
        return len(words)
    kinds = [os.path.splitext(word)[1].lower() for word in words[:2]]
    tensorflow = kinds[1] == ".index" or os.path.isfile(f"{words[1]}.index")
    return 2 if ".json" in kinds and ({".hdf5", ".h5"} & set(kinds) or tensorflow) else 1


def _without_dashes(arguments: Sequence[str]) -> list[str]:
    """Resolve `--`: what follows is not a flag. All of it are paths, so -x becomes ./-x."""
    if "--" not in arguments:
        return list(arguments)
    at = list(arguments).index("--")
    return [*arguments[:at]] + [
        f"./{name}" if name.startswith("-") and name != "-" else name
        for name in arguments[at + 1 :]
    ]


def _join_model(arguments: list[str]) -> list[str]:
    """Make the two words of `--model options.json weights.hdf5` one.

    argparse cannot tell them from `--model my-model text.txt`. No argument of a process contains
    the character that joins them.
    """
    at = arguments.index("--model") + 1 if "--model" in arguments else len(arguments)
    if model_words(arguments[at : at + 2]) < 2:
        return arguments
    return [*arguments[:at], JOINT.join(arguments[at : at + 2]), *arguments[at + 2 :]]

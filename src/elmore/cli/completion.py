"""`elmore --completion SHELL`: a script that completes verbs, flags, choices and file names.

The scripts are made from the parsers of the verbs, so a new flag needs nothing here. All three
work the same way: walk the words before the cursor to the verb, then offer what it takes.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from elmore.cli.parsing import Parser
from elmore.errors import ConfigError

__all__ = ["completion_script"]

# Words of a metavar whose values are paths.
_PATHS = frozenset("PATH FILE FOLDER INPUT MODEL DATA RUN VOCAB HDF5 PICTURE".split())


_BASH = r"""# bash completion for elmore
_elmore() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local node= names= files= word i
    # bash splits --flag=value at the sign
    if [[ $cur == = ]]; then cur=
    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$node ${COMP_WORDS[i]}" in
@MOVES@
        esac
    done
    case "$node $prev" in
@VALUES@
        *) case "$node ${cur:0:1}" in
@REST@
        esac ;;
    esac
    COMPREPLY=()
    while IFS= read -r word; do COMPREPLY+=("$word"); done \
        < <(compgen -W "$names" -- "$cur"; [[ -z $files ]] || compgen -f -- "$cur")
    [[ -z $files ]] || compopt -o filenames 2> /dev/null
}
complete -F _elmore elmore
"""
_ZSH = r"""#compdef elmore
_elmore() {
    local node= word prev=${words[CURRENT-1]}
    local -a names
    if [[ $PREFIX == --*=* ]]; then prev=${PREFIX%%=*}; compset -P '*='; fi
    for word in "${(@)words[2,CURRENT-1]}"; do
        case "$node $word" in
@MOVES@
        esac
    done
    case "$node $prev" in
@VALUES@
    esac
    if [[ $PREFIX == -* ]]; then
        case "$node" in
@FLAGS@
        esac
        _describe -o flag names
    else
        case "$node" in
@WORDS@
        esac
    fi
}
# as a file of $fpath, or sourced
if [[ $funcstack[1] == _elmore ]]; then _elmore "$@"; else compdef _elmore elmore; fi
"""
_FISH = """# fish completion for elmore
function __elmore_at
    set -l node ''
    for word in (commandline -opc)[2..]
        switch "$node $word"
@MOVES@
        end
    end
    test "$node" = "$argv[1]"
end
complete -c elmore -f
@LINES@
"""


@dataclass(frozen=True, kw_only=True)
class _Argument:
    """A flag or a positional argument; a positional one has no names."""

    names: tuple[str, ...] = ()
    help: str = ""
    takes_value: bool = True
    choices: tuple[str, ...] = ()
    files: bool = False


@dataclass(frozen=True, kw_only=True)
class _Node:
    """What may follow the words of `path`: elmore itself, a verb, or one of its actions."""

    path: str
    commands: Mapping[str, str]
    arguments: tuple[_Argument, ...]

    @property
    def flags(self) -> tuple[_Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.names)

    @property
    def words(self) -> dict[str, str]:
        """Words that may be typed here, with what they mean."""
        positional = (argument for argument in self.arguments if not argument.names)
        return {**self.commands, **{word: "" for one in positional for word in one.choices}}

    @property
    def files(self) -> bool:
        return any(argument.files and not argument.names for argument in self.arguments)


def completion_script(words: Sequence[str], verbs: Mapping[str, tuple[str, str]]) -> str:
    """The script for a shell.

    Args:
        words: what follows `--completion`: the shell.
        verbs: module and summary of every verb.

    Raises:
        ConfigError: it is not one of bash, zsh and fish.
    """
    if len(words) != 1 or words[0] not in _SHELLS:
        raise ConfigError(f"--completion needs a shell; use one of {', '.join(_SHELLS)}")
    return _SHELLS[words[0]](list(_nodes(verbs)))


def _nodes(verbs: Mapping[str, tuple[str, str]]) -> Iterator[_Node]:
    own = (
        _Argument(names=("-h", "--help"), help="show help", takes_value=False),
        _Argument(names=("--version",), help="show the version", takes_value=False),
        _Argument(names=("--completion",), help="script for a shell", choices=tuple(_SHELLS)),
    )
    commands = {name: summary for name, (_, summary) in verbs.items()}
    yield _Node(path="", commands=commands, arguments=own)
    for name, (module, summary) in verbs.items():
        parser = Parser(prog=f"elmore {name}", summary=summary, examples="")
        importlib.import_module(module).add_arguments(parser)
        yield from _parser_nodes(name, parser)


def _parser_nodes(path: str, parser: argparse.ArgumentParser) -> Iterator[_Node]:
    commands: dict[str, str] = {}
    arguments: list[_Argument] = []
    below: list[_Node] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            described = {one.dest: one.help or "" for one in action._choices_actions}
            for name, inner in action.choices.items():
                commands[name] = described.get(name, "")
                below += _parser_nodes(f"{path} {name}", inner)
        elif action.help != argparse.SUPPRESS:
            arguments.append(_argument(action, parser.prog))
    yield _Node(path=path, commands=commands, arguments=tuple(arguments))
    yield from below


def _argument(action: argparse.Action, prog: str) -> _Argument:
    metavar = action.metavar or ""
    text = metavar if isinstance(metavar, str) else " ".join(metavar)
    return _Argument(
        names=tuple(action.option_strings),
        help=(action.help or "") % {**vars(action), "prog": prog},
        takes_value=action.nargs != 0,
        choices=tuple(map(str, action.choices or ())),
        files=not action.choices and not _PATHS.isdisjoint(re.findall(r"\w+", text)),
    )


def _moves(nodes: Sequence[_Node]) -> list[tuple[str, str]]:
    """Which word leads where: the path so far with the word, and the path of the next node."""
    seen = [f"{node.path} {name}" for node in nodes for name in node.commands]
    return [(words, words.strip()) for words in seen]


def _move_cases(nodes: Sequence[_Node]) -> list[str]:
    """The same as branches of a `case`, in bash and zsh."""
    quote = shlex.quote
    return [f"            {quote(seen)}) node={quote(to)} ;;" for seen, to in _moves(nodes)]


def _bash(nodes: Sequence[_Node]) -> str:
    values, rest = [], []
    for node in nodes:
        for flag in node.flags:
            if flag.takes_value:
                seen = "|".join(shlex.quote(f"{node.path} {name}") for name in flag.names)
                values.append(f"        {seen}) {_bash_offer(flag.choices, flag.files)} ;;")
        names = [name for flag in node.flags for name in flag.names]
        rest.append(f"            {shlex.quote(f'{node.path} -')}) {_bash_offer(names, False)} ;;")
        offer = _bash_offer(list(node.words), node.files)
        rest.append(f"            {shlex.quote(f'{node.path} ')}*) {offer} ;;")
    return _filled(_BASH, MOVES=_move_cases(nodes), VALUES=values, REST=rest)


def _bash_offer(names: Sequence[str], files: bool) -> str:
    parts = [f"names={shlex.quote(' '.join(names))}"] if names else []
    return " ".join([*parts, *(["files=1"] if files else [])]) or ":"


def _zsh(nodes: Sequence[_Node]) -> str:
    values, flags, words = [], [], []
    for node in nodes:
        for flag in node.flags:
            if flag.takes_value:
                seen = "|".join(shlex.quote(f"{node.path} {name}") for name in flag.names)
                give = f"compadd -- {shlex.join(flag.choices)}" if flag.choices else ":"
                values.append(f"        {seen}) {'_files' if flag.files else give}; return ;;")
        path = shlex.quote(node.path)
        described = {name: flag.help for flag in node.flags for name in flag.names}
        flags.append(f"            {path}) names=({_zsh_items(described)}) ;;")
        files = "; _files" if node.files else ""
        offer = f"names=({_zsh_items(node.words)}); _describe word names{files}"
        words.append(f"            {path}) {offer} ;;")
    return _filled(_ZSH, MOVES=_move_cases(nodes), VALUES=values, FLAGS=flags, WORDS=words)


def _filled(template: str, **cases: list[str]) -> str:
    for name, lines in cases.items():
        template = template.replace(f"@{name}@", "\n".join(lines))
    return template


def _zsh_items(described: Mapping[str, str]) -> str:
    return " ".join(
        shlex.quote(f"{name}:{text}" if text else name) for name, text in described.items()
    )


def _fish(nodes: Sequence[_Node]) -> str:
    quote, lines = _fish_quote, list[str]()
    moves = [f"            case {quote(seen)}; set node {quote(to)}" for seen, to in _moves(nodes)]
    for node in nodes:
        here = f"complete -c elmore -n {quote(f'__elmore_at {quote(node.path)}')}"
        lines += [f"{here} -a {quote(word)}{_fish_help(text)}" for word, text in node.words.items()]
        if node.files:
            lines.append(f"{here} -F")
        for flag in node.flags:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in flag.names
            )
            value = f" -x -a {quote(' '.join(flag.choices))}" if flag.choices else " -x"
            takes = (" -r -F" if flag.files else value) if flag.takes_value else ""
            lines.append(f"{here} {names}{takes}{_fish_help(flag.help)}")
    return _filled(_FISH, MOVES=moves, LINES=lines)


def _fish_help(text: str) -> str:
    return f" -d {_fish_quote(text)}" if text else ""


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SHELLS: dict[str, Callable[[Sequence[_Node]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}

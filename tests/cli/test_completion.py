"""`elmore --completion`: real shells complete with the scripts."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from elmore.cli.completion import _parser_nodes
from elmore.cli.main import VERBS

# Calls the function that `complete` knows, as Tab does, with the words of $1 split at spaces and
# `=`; the cursor is behind the last one.
BASH = r"""
source "$SCRIPT"
read -r -a COMP_WORDS <<< "${1//=/ = }"
[[ $1 == *[\ =] ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
function=$(complete -p elmore | sed 's/.*-F \([^ ]*\) .*/\1/')
"$function"
printf '%s\n' "${COMPREPLY[@]}"
"""
# zsh completes only at a terminal. Here its builtins are replaced by functions that print what they
# were given, filtered as zsh does.
ZSH = r"""
matching() { local one; for one; do [[ $one == "$PREFIX"* ]] && print -r -- "$one"; done }
compadd() { [[ $1 == -- ]] && shift; matching "$@" }
_describe() { local -a items; items=("${(@P)@[-1]}"); matching "${(@)items%%:*}" }
_files() { matching *(N) }
compset() { PREFIX=${PREFIX#*=} }
compdef() { : }
source "$SCRIPT"
words=(${(s: :)1}); [[ $1 == *\  ]] && words+=("")
CURRENT=$#words PREFIX=$words[-1]
_elmore
true
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from elmore.cli.completion import completion_script

    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        (folder / shell).write_text(completion_script([shell], VERBS), "utf-8")
    return folder


def offered(shell: str, scripts: Path, place: Path, line: str) -> set[str]:
    """What a shell offers at the end of a line, in a folder with two files and a folder."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    (place / "text one.txt").touch()
    (place / "model.json").touch()
    (place / "folder").mkdir(exist_ok=True)
    program_text = {
        "bash": BASH,
        "zsh": ZSH,
        "fish": 'source "$SCRIPT"; complete -C "$argv[1]" | string split -f1 \\t',
    }[shell]
    none = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    name = [] if shell == "fish" else [shell]
    done = subprocess.run(
        [program, *none, "-c", program_text, *name, line],
        cwd=place,
        env={**os.environ, "SCRIPT": str(scripts / shell), "HOME": str(place)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == "", done.stderr
    found = {word.rstrip("/") for word in done.stdout.split("\n") if word}
    return {word.rpartition("=")[2].replace("\\", "") for word in found}


SHELLS = pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])


@SHELLS
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("elmore fi", {"find", "fine-tune"}),
        ("elmore --v", {"--version"}),
        ("elmore --completion ", {"bash", "zsh", "fish"}),
        ("elmore embed --pre", {"--precision"}),
        ("elmore embed --precision ", {"float32", "float16", "bfloat16", "int8"}),
        ("elmore embed --precision=f", {"float32", "float16"}),
        ("elmore embed te", {"text one.txt"}),
        ("elmore embed -o mo", {"model.json"}),
        ("elmore convert model.json -o ", {"text one.txt", "model.json", "folder"}),
        ("elmore embed --threads ", set()),
        ("elmore embed --no-such", set()),
        ("elmore task tr", {"train"}),
    ],
)
def test_what_is_offered(
    shell: str, scripts: Path, tmp_path: Path, line: str, wanted: set[str]
) -> None:
    assert offered(shell, scripts, tmp_path, line) == wanted


@SHELLS
def test_every_verb_is_offered(shell: str, scripts: Path, tmp_path: Path) -> None:
    assert offered(shell, scripts, tmp_path, "elmore ") >= set(VERBS)


def test_actions_of_a_verb_have_flags_of_their_own() -> None:
    parser = argparse.ArgumentParser(prog="elmore fruit")
    actions = parser.add_subparsers(dest="action")
    eat = actions.add_parser("eat", help="with teeth")
    eat.add_argument("--fork", metavar="FILE", help="100 %% steel")
    outer, inner = _parser_nodes("fruit", parser)
    assert (outer.path, dict(outer.commands)) == ("fruit", {"eat": "with teeth"})
    fork = inner.flags[-1]
    assert (inner.path, fork.names, fork.help) == ("fruit eat", ("--fork",), "100 % steel")
    assert fork.files


@pytest.mark.parametrize("words", [["tcsh"], [], ["bash", "zsh"]])
def test_other_shells_are_refused(cli, words: list[str]) -> None:
    result = cli("--completion", *words)
    assert result.code == 2
    assert "--completion needs a shell; use one of bash, zsh, fish" in result.err


def test_the_verb_prints_the_script(cli, scripts: Path) -> None:
    result = cli("--completion", "bash")
    assert (result.code, result.out) == (0, (scripts / "bash").read_text("utf-8"))

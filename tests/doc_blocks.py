"""Run the code blocks of a page, and compare what they print with what the page shows.

In a console block a line that starts with `$ ` is a command, and what follows it is what a terminal
shows; nothing below it means that the output is not shown. There, `…` stands for anything, and
numbers with a decimal point may differ a little. Output that begins with `elmore: error:` is a
command that must fail so. A block called `output` shows what the Python block before it prints. A
block whose first line is `# needs PACKAGE` is left out where the package is not installed.
ELMORE_DOCS=write puts what was printed into the page, where it differs.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from elmore.cli.main import main

__all__ = ["Block", "Command", "blocks_of", "commands_of", "run_block"]

FENCE = re.compile(r"^```(python|console|output)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ECHO = re.compile(r"""(echo (?:"[^"$`]*"|'[^']*')) \| (elmore .*)""")
# A word of a shell that only a shell understands.
SHELL = re.compile(r"[|<>&;$*?`\\]|^\w+=")
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
ANYTHING = "…"
NEEDS = re.compile(r"# needs (\w+)\n")


@dataclass(frozen=True)
class Block:
    """A fenced block that runs."""

    kind: str
    code: str


@dataclass(frozen=True)
class Command:
    """A line of a console block, and what the page shows below it."""

    line: str
    shown: str

    @property
    def fails(self) -> bool:
        """Whether the page shows it as a mistake."""
        return self.shown.startswith("elmore: error:")


def blocks_of(page: Path) -> list[Block]:
    """List the blocks of a page that run."""
    return [Block(kind, code) for kind, code in FENCE.findall(page.read_text(encoding="utf-8"))]


def commands_of(code: str) -> list[Command]:
    """Part a console block into commands."""
    parts = re.split(r"^\$ ", code, flags=re.MULTILINE)
    assert not parts[0].strip(), f"a console block starts with a command: {parts[0]!r}"
    return [Command(*part.partition("\n")[::2]) for part in parts[1:]]


def run_block(page: Path, block: Block, space: dict[str, object]) -> None:
    """Run a block in the current folder; names of earlier Python blocks are in `space`."""
    if block.kind == "python":
        needed = NEEDS.match(block.code)
        if needed and find_spec(needed[1]) is None:
            space["__printed__"] = None
            return
        with contextlib.redirect_stdout(io.StringIO()) as printed_here, warnings.catch_warnings():
            if needed:  # a package that is not ours may warn of anything
                warnings.simplefilter("ignore")
            exec(compile(block.code, page.name, "exec"), space)
        space["__printed__"] = printed_here.getvalue()
        return
    if block.kind == "output" and space["__printed__"] is None:
        return
    if block.kind == "output":
        printed = str(space["__printed__"])
        if not agrees(block.code, printed):
            before = f"```output\n{block.code}"
            _differs(page, before, f"```output\n{printed}", block.code, "the code above it")
        return
    for command in commands_of(block.code):
        code, printed = run_command(command.line)
        assert (code != 0) == command.fails, f"$ {command.line}\nexit code {code}\n{printed}"
        if command.shown.strip() and not agrees(command.shown, printed):
            before = f"$ {command.line}\n{command.shown}"
            _differs(page, before, f"$ {command.line}\n{printed}", command.shown, command.line)


def _differs(page: Path, before: str, after: str, shown: str, what: str) -> None:
    """Write what was printed into the page if that is asked for, else fail."""
    if os.environ.get("ELMORE_DOCS") == "write" and ANYTHING not in shown:
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(before, after), "utf-8")
        return
    printed = after.partition("\n")[2]
    raise AssertionError(f"{page.name} shows\n{shown}\nbut `{what}` prints\n{printed}")


def run_command(line: str) -> tuple[int, str]:
    """Run a line; give the exit code and all that it prints.

    Plain calls of elmore run in this process, which spares them the time to import torch.
    """
    echo, elmore = re.fullmatch(ECHO, line).groups() if re.fullmatch(ECHO, line) else ("", line)
    words = shlex.split(elmore)
    if words[0] == "elmore" and not any(SHELL.search(word) for word in words):
        stdin = " ".join(shlex.split(echo)[1:]) + "\n" if echo else ""
        return _run_here(words[1:], stdin)
    python = shlex.quote(sys.executable)
    command = re.sub(r"(^|\| |=\w+ )elmore ", rf"\1{python} -m elmore ", line)
    command = re.sub(r"^python ", f"{python} ", command)
    done = subprocess.run(
        ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode, done.stdout


def _run_here(arguments: list[str], stdin: str) -> tuple[int, str]:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(terminal), contextlib.redirect_stderr(terminal):
            code = main(arguments)
    finally:
        sys.stdin = before
    return code, terminal.buffer.getvalue().decode()  # type: ignore[attr-defined]


def agrees(shown: str, printed: str) -> bool:
    """Tell whether a page shows what was printed."""
    pattern, numbers = "", []
    for part in re.split(rf"({NUMBER.pattern}|\s*{ANYTHING}\s*|\s+)", shown.strip()):
        if ANYTHING in part:
            pattern += r"[\s\S]*?"
        elif part.isspace():
            pattern += r"\s+"
        elif NUMBER.fullmatch(part):
            pattern += f"({NUMBER.pattern})"
            numbers.append(float(part))
        else:
            pattern += re.escape(part)
    match = re.fullmatch(pattern, printed.strip())
    return match is not None and all(
        math.isclose(wanted, float(found), rel_tol=0.02, abs_tol=0.011)
        for wanted, found in zip(numbers, match.groups(), strict=True)
    )

"""Help of every verb and action, the log, and progress bars."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings

import pytest

import elmore
from elmore.cli import main as program
from elmore.cli.console import fitted
from elmore.cli.main import VERBS
from elmore.cli.options import ModelChoice


def test_help_groups_every_verb(cli):
    result = cli("--help")
    assert result.code == 0
    for heading, verbs in VERBS.items():
        section = result.out.partition(f"{heading}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == list(verbs)
    assert cli().out == result.out


def test_variables_are_called_after_the_flags(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("ELMORE_SCORE_FORMAT", "xml")
    result = cli("score", "A plant grew .")
    assert (result.code, result.out) == (2, "")
    assert "'--format'" in result.err
    monkeypatch.setenv("ELMORE_FIND_TOP", "none")
    assert "'--top'" in cli("find", tmp_path, "bank").err


@pytest.mark.parametrize("name", [name for verbs in VERBS.values() for name in verbs])
def test_help_of_a_verb_ends_with_examples(cli, name):
    result = cli(name, "--help")
    assert result.code == 0
    examples = result.out.partition("examples:\n")[2]
    assert examples.count("elmore ") >= 2
    assert max(map(len, result.out.splitlines())) <= 104


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("elmore fi", {"find", "fine-tune"}),
        ("elmore embed --precision f", {"float32", "float16"}),
    ],
)
def test_completion(line, wanted):
    words = {"_ELMORE_COMPLETE": "bash_complete", "COMP_WORDS": line}
    environment = {**os.environ, **words, "COMP_CWORD": str(len(line.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "elmore"], env=environment, capture_output=True, text=True
    )
    assert {word.partition(",")[2] for word in done.stdout.split()} == wanted


def test_log_and_warnings_are_lines_on_stderr(cli, tiny_folder, text, monkeypatch):
    load = ModelChoice.load

    def chatty(*arguments):
        logging.getLogger("elmore.test").info("loading")
        warnings.warn("mind\nthis", stacklevel=1)
        warnings.warn("for developers", DeprecationWarning, stacklevel=1)
        return load(*arguments)

    monkeypatch.setattr(ModelChoice, "load", chatty)
    base = ["embed", text, "--model", tiny_folder]
    assert cli(*base).err.splitlines()[0] == "elmore: warning: mind\\nthis"
    assert "elmore: info: loading" in cli(*base, "-v").err
    assert cli(*base, "-q").err == ""
    assert not [h for h in logging.getLogger("elmore").handlers if type(h) is logging.StreamHandler]


def test_tables_fit_the_terminal(monkeypatch):
    assert fitted("x" * 500) == "x" * 500
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    assert fitted("x" * 500 + "\ny") == "x" * 39 + "…\ny"


def test_main_reads_the_arguments_of_the_process(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["elmore", "--version"])
    assert program.main() == 0
    assert capsys.readouterr().out == f"elmore {elmore.__version__}\n"

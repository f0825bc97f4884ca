"""Help of every verb and action, the log, and progress bars."""

from __future__ import annotations

import logging
import warnings

import pytest

import elmore
from elmore.base import messages as _messages
from elmore.base import optional as _imports
from elmore.cli import main as program
from elmore.cli.main import VERBS
from elmore.errors import MissingExtra


def test_help_lists_every_verb(cli):
    result = cli("--help")
    assert result.code == 0
    assert all(f"  {name}" in result.out for name in VERBS)


@pytest.mark.parametrize("name", VERBS)
def test_help_of_a_verb_ends_with_examples(cli, name):
    result = cli(name, "--help")
    assert result.code == 0
    examples = result.out.partition("examples:\n")[2]
    assert examples.count("elmore ") >= 2
    assert max(map(len, examples.splitlines())) <= 100


@pytest.mark.parametrize(
    ("line", "own", "other"),
    [
        ("task train", "--dev", "--trained"),
        ("task evaluate", "--trained", "--vectors"),
        ("task predict", "--trained", "--seeds"),
        ("analyze pos", "--tags", "--query"),
        ("analyze wsd", "--no-random", "--tags"),
        ("analyze neighbors", "--query", "--no-random"),
        ("analyze layers", "--recipe", "--shares"),
        ("analyze placement", "--runs", "--layers"),
        ("analyze sample-size", "--shares", "--limit"),
        ("analyze mix", "--plot", "--model"),
        ("recipes list", "--json", "NAME"),
        ("recipes show", "NAME", "--json"),
    ],
)
def test_an_action_shows_its_own_flags(cli, line, own, other):
    verb, action = line.split()
    assert f"    {action}" in cli(verb, "--help").out
    help_, _, examples = cli(verb, action, "--help").out.partition("examples:\n")
    assert help_.startswith(f"usage: elmore {line} ")
    assert own in help_
    assert other not in help_
    assert examples.count(f"elmore {verb}") >= 2
    assert max(map(len, examples.splitlines())) <= 100


def test_version(cli):
    assert cli("--version").out == f"elmore {elmore.__version__}\n"


def test_log_and_warnings_are_lines_on_stderr(cli, tiny_folder, text, monkeypatch):
    from elmore.cli import embed

    load = embed._load

    def chatty(*arguments):
        logging.getLogger("elmore.test").info("loading")
        warnings.warn("mind\nthis", stacklevel=1)
        warnings.warn("for developers", DeprecationWarning, stacklevel=1)
        return load(*arguments)

    monkeypatch.setattr(embed, "_load", chatty)
    base = ["embed", text, "--model", tiny_folder]
    assert cli(*base).err.splitlines()[0] == "elmore: warning: mind\\nthis"
    assert "elmore: info: loading" in cli(*base, "-v").err
    assert cli(*base, "-q").err == ""
    assert not [h for h in logging.getLogger("elmore").handlers if type(h) is logging.StreamHandler]


def test_a_bar_only_on_a_terminal(monkeypatch):
    from elmore.cli.report import make_progress

    assert make_progress(unit="words") is _messages.SILENT
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    bar = make_progress(unit="words", total=2)
    assert bar is not _messages.SILENT
    bar.update(1)
    bar.close()
    assert make_progress(unit="words", quiet=True) is _messages.SILENT


def test_require():
    assert _imports.require("json", "none", "this test").__name__ == "json"
    with pytest.raises(MissingExtra) as refused:
        _imports.require("nosuch.part", "plot", "plot")
    wanted = "plot needs nosuch; install elmore[plot] (in a clone: `pip install '.[plot]'`)"
    assert str(refused.value) == wanted


def test_main_reads_the_arguments_of_the_process(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["elmore", "--version"])
    assert program.main() == 0
    assert capsys.readouterr().out.startswith("elmore ")

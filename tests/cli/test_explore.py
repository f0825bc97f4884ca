"""`elmore explore`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from slow_language_model import load_both

from elmore import Elmo, cosine, substitutes

TWO = ("I sat on the bank .", "The bank lent money .")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explore")
    load_both(folder)[0].save(folder / "lm")
    return folder / "lm"


def test_the_word_is_found_and_compared(cli, model: Path):
    result = cli("explore", *TWO, "--model", model)
    assert (result.code, result.err) == (0, "")
    assert "bank: mean of all layers" in result.out
    assert "I sat on the [bank] ." in result.out
    assert "\x1b" not in result.out
    elmo = Elmo.load(model)
    a, b = elmo.embed(list(TWO))
    assert f" 1.00  {cosine(a[4], b[1]):.2f} " in result.out
    words = substitutes(elmo, TWO[1], 1, 8)
    assert f"   2  {', '.join(word for word, _ in words)}\n" in result.out


def test_json(cli, model: Path):
    flags = ["--model", model, "--json", "--layers", "all", "--top", "3"]
    report = json.loads(cli("explore", *TWO, *flags).out)
    assert report["word"] == "bank"
    assert [(use["sentence"], use["position"]) for use in report["uses"]] == [(0, 4), (1, 1)]
    assert [len(use["substitutes"]) for use in report["uses"]] == [3, 3]
    tables = [np.array(table["cosine"]) for table in report["similarity"]]
    np.testing.assert_allclose(tables[0], 1, atol=1e-5)  # the word alone
    a, b = Elmo.load(model).layers(list(TWO))
    for layer in range(3):
        wanted = cosine(a.values[layer, 4], b.values[layer, 1])
        assert tables[layer][0, 1] == pytest.approx(wanted, abs=1e-5)


def test_stdin_a_word_and_weights(cli, model: Path):
    stdin = "\n".join(["", *TWO, ""]).encode()
    flags = ("--word", "THE", "--layers", "0,0,1", "--top", "0", "--model", model)
    result = cli("explore", *flags, stdin=stdin)
    assert result.code == 0
    assert "THE: layers weighted [0.0, 0.0, 1.0]" in result.out
    assert "[The] bank lent" in result.out
    assert "language model" not in result.out


def test_a_model_without_words_compares_only(cli, tiny_folder: Path):
    result = cli("explore", *TWO, "--model", tiny_folder)
    assert result.code == 0
    assert "language model" not in result.out


@pytest.mark.parametrize(
    ("variables", "colored"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_colours_in_a_terminal(cli, model, monkeypatch, variables, colored):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True, raising=False)
    result = cli("explore", *TWO, "--model", model)
    assert result.code == 0
    assert ("\x1b[" in result.out) is colored
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.out)
    assert "1.00" in plain
    if colored:  # alike and unlike are told apart
        shades = set(re.findall(r"48;5;(\d+)m", result.out))
        assert len(shades) == 2


def test_what_does_not_print_is_shown_escaped(cli, model):
    result = cli("explore", "a\x1b[31m bank .", "bank \x07 b", "--model", model)
    assert result.code == 0
    assert "\x1b" not in result.out
    assert "\x07" not in result.out

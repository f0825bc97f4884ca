"""`elmore score --total`: perplexity."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elmore import Elmo, perplexity

LINES = ["It fell .", "", "No, he fell.", "It said no ."]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def test_a_file(cli, lm_model, lines):
    result = cli("score", "--total", "--model", lm_model, lines)
    expected = perplexity(Elmo.load(lm_model), LINES)
    assert result.code == 0
    head, row, note = result.out.splitlines()
    assert head.split() == "file forward backward mean without <UNK> tokens sentences <UNK>".split()
    name, *numbers = row.split()
    assert name == str(lines)
    assert [float(n) for n in numbers[:4]] == pytest.approx(
        [expected.forward, expected.backward, expected.mean, expected.without_unknown], abs=0.006
    )
    assert numbers[4:] == ["15", "3", f"{3 / 12:.2%}"]
    assert note.startswith("tokens: predictions per direction")
    assert result.err.endswith("\nread 4 sentences: 1 empty\n")
    assert cli("score", "--total", "--model", lm_model, lines, "-q").err == ""


def test_json_of_stdin(cli, lm_model):
    result = cli("score", "--total", "--model", lm_model, "--json", stdin="\n".join(LINES).encode())
    report = json.loads(result.out)
    expected = perplexity(Elmo.load(lm_model), LINES)
    assert report["model"].endswith("my-model")
    assert (report["start"], report["files"][0]["file"]) == ("zeros", "stdin")
    for name, value in expected.to_dict().items():
        if isinstance(value, float):
            assert report["total"][name] == pytest.approx(value, rel=1e-6)
        else:
            assert report["total"][name] == value
    assert {**report["total"], "file": "stdin"} == report["files"][0]


def test_several_files_and_their_total(cli, lm_model, lines, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("It fell .\n" * 5, encoding="utf-8")
    rows = cli("score", "--total", "--model", lm_model, lines, other).out.splitlines()
    assert [row.split()[0] for row in rows[1:4]] == [str(lines), str(other), "total"]
    report = json.loads(cli("score", "--total", "--model", lm_model, lines, other, "--json").out)
    together = perplexity(Elmo.load(lm_model), [*LINES, *["It fell ."] * 5])
    assert report["total"]["mean"] == pytest.approx(together.mean, rel=1e-6)
    assert [file["n_sentences"] for file in report["files"]] == [3, 5]
    # The limit counts over all files; what it does not reach has no row.
    report = json.loads(
        cli("score", "--total", "--model", lm_model, lines, other, "--limit", 6, "--json").out
    )
    assert [file["n_sentences"] for file in report["files"]] == [3, 2]
    report = json.loads(
        cli("score", "--total", "--model", lm_model, lines, other, "--limit", 4, "--json").out
    )
    assert [file["file"] for file in report["files"]] == [str(lines)]


def test_ways_to_read(cli, lm_model):
    text = b"It fell.\nIt said no. It fell."
    counts = {
        flag: json.loads(
            cli("score", "--total", "--model", lm_model, "--json", *flag, stdin=text).out
        )["total"]
        for flag in [(), ("--tokenized",), ("--split-sentences",)]
    }
    assert [counts[flag]["n_sentences"] for flag in counts] == [2, 2, 3]
    assert counts[("--tokenized",)]["n_words"] == 7
    long = ("x" * 80).encode()
    assert "1 token cut at 48 bytes" in cli("score", "--total", "--model", lm_model, stdin=long).err


def test_settings_reach_the_model(cli, lm_model):
    text = "\n".join(LINES).encode()
    base = json.loads(cli("score", "--total", "--model", lm_model, "--json", stdin=text).out)[
        "total"
    ]["mean"]
    flags = ["--batch-tokens", "1", "--threads", "1"]
    same = json.loads(
        cli("score", "--total", "--model", lm_model, "--json", *flags, stdin=text).out
    )
    assert same["total"]["mean"] == pytest.approx(base, rel=1e-6)
    warm = json.loads(
        cli("score", "--total", "--model", lm_model, "--json", "--start", "warm", stdin=text).out
    )
    assert warm["start"] == "warm"
    assert warm["total"]["mean"] != pytest.approx(base, rel=1e-6)


def test_many_unknown_words_are_warned_about(cli, lm_model: Path) -> None:
    done = cli(
        "score", "--total", "--model", lm_model, "--tokenized", stdin=b"Gar viele Woerter fell .\n"
    )
    assert done.code == 0
    assert "warning: 60% of the words are not in the vocabulary" in done.err
    assert (
        cli("score", "--total", "--model", lm_model, "--tokenized", stdin=b"It fell .\n").err == ""
    )

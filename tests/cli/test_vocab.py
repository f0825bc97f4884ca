"""`elmore vocab`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "corpus.txt").write_text("a b c\na b\n\na <S> é\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_to_stdout(cli, corpus: Path) -> None:
    result = cli("vocab", "corpus.txt", "--tokenized", "--size", "5")
    assert (result.code, result.out) == (0, "<S>\n</S>\n<UNK>\na\nb\n")
    said = "5 words, <S> </S> <UNK> included, cover 75.00% of 8 tokens; the text has 5 different"
    assert said in result.err  # with <S> itself


def test_to_a_file(cli, corpus: Path) -> None:
    base = ["vocab", "corpus.txt", "--tokenized", "--min-count", "1", "-o", "vocab.txt"]
    report = json.loads(cli(*base, "--json").out)
    assert report == {"words": 7, "types": 5, "tokens": 8, "oov_rate": 0, "output": "vocab.txt"}
    assert (corpus / "vocab.txt").read_text() == "<S>\n</S>\n<UNK>\na\nb\nc\né\n"
    refused = cli(*base)
    assert refused.code == 2
    assert "--force" in refused.err
    assert cli(*base, "--force", "-q").err == ""


def test_show(cli, corpus: Path) -> None:
    words = " ".join(f"w{k} " * (k + 1) for k in range(200))
    (corpus / "many.txt").write_text(words + "\n")
    assert cli("prepare", "many.txt", "-o", "data", "-q").code == 0
    result = cli("vocab", "--show", "data")
    assert result.code == 0
    rows = [line.split() for line in result.out.splitlines()]
    assert [row[0] for row in rows] == ["words", "100", "200", "203"]
    assert rows[-1][1:] == ["1", "20,100", "0.00%"]
    report = json.loads(cli("vocab", "--show", "data", "--json").out)
    assert report[0]["tokens"] == sum(range(104, 201))


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (2, [], "no INPUT"),
        (2, ["corpus.txt", "--show", "data"], "--show"),
        (2, ["corpus.txt", "--json"], "-o FILE"),
        (2, ["corpus.txt", "--size", "2"], "from 4 to"),
        (1, ["--show", "corpus.txt"], "prepared.json"),
        (1, ["empty.txt"], "no tokens"),
    ],
)
def test_bad_use_is_one_line(cli, corpus: Path, code, arguments, message) -> None:
    (corpus / "empty.txt").write_text("\n")
    result = cli("vocab", *arguments)
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert result.err.count("\n") == 1

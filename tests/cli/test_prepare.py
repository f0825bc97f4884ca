"""`elmore prepare`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elmore.corpus.prepared import Prepared


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    text = "\n\n".join(f"It fell .\nw{k} did n't ." for k in range(40))
    (tmp_path / "corpus.txt").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_prepare(cli, corpus: Path) -> None:
    result = cli("prepare", "corpus.txt", "-o", "data/", "--tokenized", "--heldout", "0.1")
    assert (result.code, result.out) == (0, "")
    assert "  documents " in result.err
    assert "tokens per second" in result.err
    made = Prepared.open(corpus / "data")
    assert made.training.documents + made.heldout.documents == 40
    assert made.tokenizer == "spaces"


def test_the_report_as_json(cli, corpus: Path) -> None:
    flags = ["--vocabulary", "8", "--heldout-files", "corpus.txt", "--json", "--seed", "3"]
    (corpus / "more.txt").write_text("It fell .\n\nIt rose .\n")
    result = cli("prepare", "more.txt", "-o", "data", *flags)
    assert (result.code, result.err) == (0, "")
    report = json.loads(result.out)
    assert report["training"] == {"tokens": 6, "sentences": 2, "documents": 2}
    assert report["heldout"]["documents"] == 40
    assert report["vocabulary"] == 7
    assert 0 < report["heldout_oov_rate"] < 1


def test_a_vocabulary_file(cli, corpus: Path) -> None:
    (corpus / "vocab.txt").write_text("fell\nIt\n<UNK>\n</S>\n<S>\n")
    assert cli("prepare", "corpus.txt", "-o", "data", "--vocabulary", "vocab.txt", "-q").err == ""
    assert (corpus / "data" / "vocab.txt").read_text() == "fell\nIt\n<UNK>\n</S>\n<S>\n"


def test_an_unsorted_vocabulary_is_warned_about_in_one_line(cli, corpus: Path) -> None:
    words = [f"w{k}" for k in range(40)]
    (corpus / "vocab.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *words, "fell", "."]))
    (corpus / "corpus.txt").write_text("".join(f"w{k} fell . " * k + "\n" for k in range(40)))
    result = cli("prepare", "corpus.txt", "-o", "data", "--vocabulary", "vocab.txt")
    assert result.code == 0
    [line] = [line for line in result.err.splitlines() if "warning" in line]
    assert "not sorted by frequency" in line


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (1, ["*.nothing", "-o", "data"], "matches no file"),
        (1, ["empty.txt", "-o", "data"], "no tokens"),
        (1, ["latin.txt", "-o", "data"], "latin.txt:1: invalid UTF-8"),
        (1, ["corpus.txt", "-o", "data", "--vocabulary", "corpus.txt"], "corpus.txt"),
        (2, ["corpus.txt", "-o", "full"], "did not write"),
        (2, ["corpus.txt", "-o", "full", "--force"], "did not write"),
        (2, ["corpus.txt", "-o", "data", "--tokenized", "--split-sentences"], "cannot be combined"),
        (2, ["corpus.txt", "-o", "data", "--heldout", "2"], "heldout=2"),
    ],
)
def test_bad_use_is_one_line(cli, corpus: Path, code, arguments, message) -> None:
    (corpus / "empty.txt").write_bytes(b"\n\n")
    (corpus / "latin.txt").write_bytes(b"\xe4\n")
    (corpus / "full").mkdir()
    (corpus / "full" / "mine").write_bytes(b"x")
    result = cli("prepare", *arguments)
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert result.err.count("\n") == 1
    assert (corpus / "full" / "mine").read_bytes() == b"x"
    assert not (corpus / "data").exists()


def test_force_replaces_an_old_one(cli, corpus: Path) -> None:
    assert cli("prepare", "corpus.txt", "-o", "data").code == 0
    refused = cli("prepare", "corpus.txt", "-o", "data")
    assert refused.code == 2
    assert "--force" in refused.err
    assert cli("prepare", "corpus.txt", "-o", "data", "--force").code == 0


def test_a_vocabulary_alone(cli, corpus: Path) -> None:
    (corpus / "words.txt").write_text("a b c\na b\n\na <S> é\n")
    base = ["prepare", "words.txt", "--tokenized", "--min-count", "1", "-o", "vocab.txt"]
    report = json.loads(cli(*base, "--json").out)
    assert (report["words"], report["types"], report["tokens"], report["oov_rate"]) == (7, 5, 8, 0)
    assert (corpus / "vocab.txt").read_text() == "<S>\n</S>\n<UNK>\na\nb\nc\né\n"
    refused = cli(*base)
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert "oov rate            0.25\n" in cli(*base, "--vocabulary", "5", "--force").err
    assert "from 4 to" in cli(*base, "--vocabulary", "2", "--force").err

"""`index`, `find`, `senses` and `change`: from text to a ranking."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmore.senses import Index
from elmore.text.word_vectors import read_word_vectors

Cli = Callable[..., Any]


@pytest.fixture
def uses(cli: Cli, lm_model: Path, tmp_path: Path) -> Path:
    text = tmp_path / "text.txt"
    text.write_text("It fell .\nno , it said .\nIt said no .\n" * 3, "utf-8")
    result = cli("index", text, "--model", lm_model, "--words", "it,said", "-o", tmp_path / "uses")
    assert result.code == 0
    assert "2 words, about 15 uses" in result.err
    assert f"indexed 15 uses of 2 words in '{tmp_path / 'uses'}'" in result.err
    return tmp_path / "uses"


def test_find_in_three_forms(cli: Cli, uses: Path) -> None:
    lines = cli("find", uses, "[It] fell .", "--top", 2).out.splitlines()
    assert len(lines) == 2
    assert "It  fell ." in lines[0]
    assert lines[0].endswith("text.txt:1")
    rows = cli("find", uses, "[It] fell .", "--csv", "--word", "it,said").out.splitlines()
    assert rows[0] == "cosine,left,word,right,source,line,shared"
    assert len(rows) == 11
    hits = json.loads(cli("find", uses, "[It] fell .", "--json").out)["hits"]
    assert hits[0]["tokens"] == ["It", "fell", "."]


def test_info_is_about_the_index(cli: Cli, uses: Path) -> None:
    found = json.loads(cli("info", uses, "--json").out)["index"]
    assert (found["words"], found["uses"], found["sources"]) == (2, 15, 1)


def test_senses_and_tags(cli: Cli, uses: Path, tmp_path: Path) -> None:
    result = cli("senses", uses, "it", "--senses", 1)
    assert result.out.startswith("it: one sense in 9 uses\n  1. 100%")
    assert "share of each source" in cli("senses", uses, "it", "--examples").out
    assert json.loads(cli("senses", uses, "it", "--json").out)[0]["word"] == "it"
    new = tmp_path / "new.txt"
    new.write_text("Yes\nWell, it fell.\n", "utf-8")
    result = cli("senses", uses, "it", "--senses", 1, "--assign", new)
    assert result.out.split("\t")[:4] == ["2", "2", "it", "1"]
    new.write_text("She said it .\n", "utf-8")
    result = cli("senses", uses, "it,said", "--senses", 1, "--assign", new)
    assert [line.split("\t")[1:3] for line in result.out.splitlines()] == [
        ["1", "it, said"],
        ["2", "it, said"],
    ]


def test_change(cli: Cli, uses: Path) -> None:
    result = cli(
        "change", uses, uses, "--min-uses", 2, "--permutations", 9, "--stop-words", "none", "--json"
    )
    rows = json.loads(result.out)["tables"]["change, by pairwise"]
    assert {row["word"]: row["p"] for row in rows} == {"it": 1, "said": 1}
    assert "said" in cli("change", uses, uses, "--min-uses", 2, "--words", " it, said").out
    top = cli(
        "change",
        uses,
        uses,
        "--min-uses",
        2,
        "--permutations",
        9,
        "--stop-words",
        "none",
        "--json",
        "--top",
        1,
    )
    report = json.loads(top.out)
    assert len(report["tables"]["change, by pairwise"]) == 1
    assert report["metrics"]["words"] == 2


def test_a_file_of_words(cli: Cli, lm_model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("It fell .\n", "utf-8")
    (tmp_path / "words.txt").write_text("fell\n\nabsent\n", "utf-8")
    base = ["index", tmp_path / "text.txt", "--model", lm_model, "--words", tmp_path / "words.txt"]
    result = cli(*base, "--json", "-q", "-o", tmp_path / "uses")
    assert json.loads(result.out)["words"] == 1
    assert result.err == ""
    base[-1] = "absent, fell"
    result = cli(*base, "-o", tmp_path / "listed")
    assert list(Index.open(tmp_path / "listed").words) == ["fell"]
    assert "not in the text: absent\n" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["index", "{text}"], "an index is a folder; pass -o FOLDER"),
        (["index", "-", "-o", "{text}.uses"], "stdin can be read only once"),
        (["find", "{text}", "the [bank]"], "is not an index; make one with `elmore index`"),
        (["find", "{uses}", "the bank"], "'the bank' is not in the index of 2 words"),
        (["find", "{uses}", "the [bank]"], "'bank' is not in the index of 2 words"),
        (["senses", "{uses}", "it", "--assign", "{text}", "--json"], "leave out --json"),
        (["senses", "{uses}", "it", "--assign", "missing.txt"], "does not exist"),
        (["change", "{uses}", "{uses}"], "no word has 20 uses in both indexes"),
        (["index", "{text}", "--words", "no.txt", "-o", "{uses}"], "'no.txt' does not exist"),
        (["index", "{text}", "--words", " ,", "-o", "{uses}"], "the list of words is empty"),
        (
            ["find", "{uses}", "the [it]", "--word", "yes,no"],
            "'yes', 'no' are not in the index",
        ),
        (["find", "{uses}", "the [it]", "-o", "hits.xlsx"], "cannot write 'hits.xlsx'"),
        (["senses", "{uses}", "it", "-o", "senses.xls"], "cannot write 'senses.xls'"),
        (["change", "{uses}", "{uses}", "-o", "change.xls"], "cannot write 'change.xls'"),
        (
            ["find", "{uses}", "it", "--where", "genre=news"],
            "has no field 'genre'; use file",
        ),
        (["find", "{uses}", "it", "--period", "10"], "add --by"),
        (["find", "{uses}", "it", "-o", "hits.svg"], "cannot write 'hits.svg'"),
        (["find", "{uses}", "/[/"], "'/[/' is not a pattern"),
        (["senses", "{uses}", "it", "--rename", "1"], "write --merge 1,3 and --rename 2=name"),
        (["senses", "{uses}", "it", "--merge", "1,9"], "'it' has no sense 9; use 1 to"),
        (["senses", "{uses}", "it", "--merge", ""], "write --merge 1,3 and --rename 2=name"),
        (
            ["senses", "{uses}", "it", "--where", "file!=x", "--rename", "1=x"],
            "leave out --where and --like",
        ),
        (
            ["senses", "{uses}", "it", "--like", "x=the [it]", "--rename", "1=x"],
            "leave out --where and --like",
        ),
        (["find", "{uses}", "it", "--like", "the [it]"], "put one word of 'it' in [brackets]"),
        (["collocates", "{uses}", "it", "--sense", "9"], "--sense 9: 'it' has"),
    ],
)
def test_mistakes_are_one_line(cli: Cli, uses: Path, arguments: list[str], message: str) -> None:
    text = uses.parent / "text.txt"
    result = cli(*(word.format(uses=uses, text=text) for word in arguments))
    assert result.code in (1, 2)
    assert message in result.err
    assert result.err.count("\n") == 1


def test_results_as_files(cli: Cli, uses: Path, tmp_path: Path) -> None:
    verbs = {
        "senses": ["senses", uses, "it", "said", "--senses", 1],
        "find": ["find", uses, "[It] fell ."],
        "change": ["change", uses, uses, "--min-uses", 2, "--permutations", 9],
    }
    for name, command in verbs.items():
        page, picture = tmp_path / f"{name}.html", tmp_path / f"{name}.svg"
        result = cli(*command, "-o", page)
        assert (result.code, result.out) == (0, "")
        assert f"wrote '{page}'" in result.err
        text = page.read_text("utf-8")
        assert text.startswith("<!doctype html>")
        assert "<table" in text
        assert 'name="viewport"' in text
        if name != "find":  # a concordance is read
            assert cli(*command, "-o", picture).code == 0
            assert picture.read_bytes() == _again(cli, command, picture)
        refused = cli(*command, "-o", page)
        assert refused.code == 2
        assert "--force" in refused.err
    cli(*verbs["find"], "-o", tmp_path / "hits.csv")
    assert (tmp_path / "hits.csv").read_text("utf-8-sig").startswith("cosine,left,word")
    tables = json.loads(_json(cli, verbs["senses"], tmp_path / "a.json"))["tables"]
    assert list(tables)[:2] == ["it: one sense in 9 uses", "it: examples"]


def _again(cli: Cli, command: list[Any], picture: Path) -> bytes:
    """The same picture once more: its bytes must not change."""
    assert cli(*command, "-o", picture, "--force", "-q").err == ""
    return picture.read_bytes()


def _json(cli: Cli, command: list[Any], path: Path) -> str:
    cli(*command, "-o", path)
    return path.read_text("utf-8")


@pytest.mark.parametrize("suffix", ["vec", "bin"])
def test_vectors_of_senses_for_gensim(cli: Cli, uses: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"senses.{suffix}"
    assert cli("senses", uses, "it", "said", "--senses", 1, "-o", path).code == 0
    found = read_word_vectors(path)
    assert found.words == ["it%1", "said%1"]
    index = Index.open(uses)
    mean = index.vectors(index.rows("it")).mean(axis=0)
    np.testing.assert_allclose(found.take(["it%1"])[0], mean / np.linalg.norm(mean), atol=1e-3)


def test_the_tokenizer_is_kept_with_the_index(cli: Cli, lm_model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("It,it fell.\n" * 3, "utf-8")
    (tmp_path / "words.txt").write_text("it,it\n", "utf-8")
    base = ["index", text, "--model", lm_model, "--words", tmp_path / "words.txt"]
    cli(*base, "--tokenizer", "spaces", "-o", tmp_path / "uses")
    index = Index.open(tmp_path / "uses")
    assert index.use(0).tokens == ("It,it", "fell.")
    assert index.find("[It,it] fell.", k=1)[0].score == pytest.approx(1, abs=0.01)
    for more in ((), ("--model", lm_model, "--threads", 1)):
        found = cli("find", tmp_path / "uses", "[It,it] fell.", "--top", 1, *more)
        assert found.out.startswith(" 1.000")
        tags = cli("senses", tmp_path / "uses", "it,it,", "--assign", text, *more)
        assert tags.code == 1  # a comma separates words
        tags = cli("senses", tmp_path / "uses", "/it,it/", "--assign", text, *more)
        assert tags.out.splitlines()[0].split("\t")[:4] == ["1", "0", "/it,it/", "1"]
    other = cli(*base, "-o", tmp_path / "uses")
    assert other.code == 1
    assert "started with tokenizer=spaces" in other.err


def test_counts_and_collocates(cli: Cli, uses: Path, tmp_path: Path) -> None:
    rows = json.loads(cli("frequencies", uses, "it", "s*,it", "--json").out)["tables"][
        "frequencies"
    ]
    assert [(row["word"], row["count"], row["documents"]) for row in rows] == [
        ("it", 9, 1),
        ("s*, it", 15, 1),
    ]
    assert rows[0]["per_million"] == pytest.approx(9 / 24 * 1e6)
    found = cli("collocates", uses, "said", "--window", 1, "-o", tmp_path / "near.tsv")
    assert found.code == 0
    lines = (tmp_path / "near.tsv").read_text("utf-8").splitlines()
    assert lines[0] == "collocate\tcount\tbefore\texpected\tlog_likelihood\tlog_dice"
    assert lines[1].startswith("it\t6\t6\t")


def test_a_plain_concordance(cli: Cli, uses: Path) -> None:
    lines = cli("find", uses, "it", "--sort", "right", "--top", 4).out.splitlines()
    assert [" ".join(line.split()[:-1]) for line in lines] == 3 * ["It fell ."] + ["no , it said ."]
    grouped = cli("find", uses, "it", "--by", "file", "--top", 1).out.splitlines()
    assert len(grouped) == 2
    assert grouped[0].endswith(":")
    assert cli("find", uses, "it", "--where", "file!=x", "--sort", "similarity").code == 0

"""Counts, collocates, periods and corrections of senses, on a corpus with dates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from elmore.errors import ConfigError, FormatError, InputError
from elmore.senses import Index, build_index, compare
from elmore.senses.change import title
from elmore.senses.corrections import Step, corrected, corrections_file
from elmore.senses.counting import collocates, frequencies
from elmore.text.statistics import dispersion

RIVER = "They sat on the {} bank of the river ."
MONEY = "The bank {} him the money ."
SIDES, VERBS = ("left", "north", "far", "other", "west"), ("lent", "gave", "paid", "owed", "sent")
# Uses of the river and of money in each decade.
DECADES = {1850: (20, 0), 1860: (15, 5), 1870: (5, 15), 1880: (0, 20)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("periods")
    rows = ["file\tdate"]
    for year, (rivers, money) in DECADES.items():
        lines = [RIVER.format(SIDES[k % 5]) for k in range(rivers)]
        lines += [MONEY.format(VERBS[k % 5]) for k in range(money)]
        (path / f"{year}.txt").write_text("\n".join([*lines, "Nothing ."]) + "\n", "utf-8")
        rows.append(f"{year}\t{year}-05-01")
    (path / "meta.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def index(folder: Path) -> Index:
    files = [folder / f"{year}.txt" for year in DECADES]
    words = ["bank", "the"]
    return build_index(files, folder / "uses", words=words, metadata=folder / "meta.tsv")


def test_shares_over_time_are_those_of_the_senses(index: Index, folder: Path) -> None:
    groups = index.groups("date", 10)
    found = compare(*groups.values(), labels=[*groups], words="bank", min_uses=10, permutations=19)
    (trend,) = found.words
    assert found.labels == ("1850-1859", "1860-1869", "1870-1879", "1880-1889")
    assert trend.uses.tolist() == [20] * 4
    river = next(
        k for k, one in enumerate(trend.senses) if RIVER[:8] in " ".join(one.typical[0].tokens)
    )
    np.testing.assert_allclose(trend.shares[:, river], [1, 0.75, 0.25, 0], atol=0.01)
    assert (np.diff(trend.distances) > 0).all()
    first, last = (index.vectors(groups[label].rows("bank")) for label in found.labels[::3])
    assert trend.distances[-1] == pytest.approx(1 - (first @ last.T).mean(), abs=0.01)
    assert trend.p == pytest.approx(0.05)
    table = found.report.tables[title(trend.word, trend.senses)]
    assert [row["group"] for row in table] == list(found.labels)
    found.save(folder / "bank.csv", overwrite=True)
    lines = (folder / "bank.csv").read_text("utf-8-sig").splitlines()
    assert lines[0] == "word,group,uses,per_million,distance,sense,substitutes,share"
    assert len(lines) == 1 + 4 * len(trend.senses)
    for name in ("a.svg", "a.html", "a.json"):
        found.save(folder / name, overwrite=True)
    assert (folder / "a.html").read_text("utf-8").count('<div class="bar">') >= 8
    with pytest.raises(ConfigError, match=r"'uses' is not an index; use `Index.open\(path\)`"):
        compare("uses", "uses")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="1 group of documents"):
        compare(*index.groups("date", 1000).values())
    with pytest.raises(ConfigError, match="period=0 joins no years; use 1 or more"):
        index.groups("date", 0)


def test_several_folders_are_joined(index: Index, folder: Path) -> None:
    parts = {
        str(year): build_index([folder / f"{year}.txt"], folder / f"uses-{year}", words=["bank"])
        for year in DECADES
    }
    found = compare(*parts.values(), min_uses=10, permutations=19)
    decades = index.groups("date", 10).values()
    whole = compare(*decades, words="bank", min_uses=10, permutations=19)
    np.testing.assert_allclose(found[0].distances, whole[0].distances, atol=1e-5)
    assert sorted(found[0].shares[0].round(2)) == sorted(whole[0].shares[0].round(2))
    np.testing.assert_allclose(found[0].per_million, whole[0].per_million)


def test_counts_and_how_evenly_words_are_spread(index: Index) -> None:
    rows = frequencies(index, ["bank", ["bank", "the"]], by="date", period=20).tables["frequencies"]
    assert [row["date"] for row in rows] == ["1840-1859", "1860-1879", "1880-1899"] * 2
    words = 20 * 9 + 1
    assert rows[0]["count"] == 20
    assert rows[0]["per_million"] == pytest.approx(1e6 * 20 / words)
    assert rows[3]["count"] == 60
    assert (rows[1]["documents"], rows[1]["of"]) == (2, 2)
    assert dispersion(np.array([10, 10]), np.array([50, 50])) == 0
    assert dispersion(np.array([10, 0, 0, 0]), np.array([25] * 4)) == 1
    assert dispersion(np.array([0, 0]), np.array([5, 5])) is None


def test_collocates_have_the_measures_of_the_books(index: Index) -> None:
    rows = collocates(index, "bank", window=3, top=50).tables["collocates of bank"]
    found = {row["collocate"]: row for row in rows}
    river = found["river"]
    assert (river["count"], river["before"]) == (40, 0)
    # Every river is near, and 40 of its 80 words that logDice asks about are banks.
    assert river["log_dice"] == pytest.approx(14 + np.log2(2 * 40 / (80 + 40)), abs=1e-6)
    near = sum(3 + 3 for _ in range(40)) + sum(1 + 3 for _ in range(40))
    size = int(index.n_words.sum())
    table = np.array([[40, 0], [near - 40, size - near]], float)
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    # As a comparison of two corpora, with the counts of the word alone (Rayson and Garside 2000).
    assert river["log_likelihood"] == pytest.approx(2 * 40 * np.log(40 / expected[0, 0]), rel=1e-6)
    senses = index.senses("bank")
    rivers = [s for s in senses.senses if "river" in senses.index.use(int(s.rows[0])).tokens]
    mine = collocates(index, "bank", rows=rivers[0].rows, window=3).tables["collocates of bank"]
    assert "money" not in {row["collocate"] for row in mine}
    with pytest.raises(InputError, match="no word is near 'bank' 999 times"):
        collocates(index, "bank", min_count=999)


def test_senses_are_corrected_by_hand(index: Index) -> None:
    plain = index.senses("bank", corrected=False, n_senses=2)
    assert len(plain) == 2
    corrected(plain, [Step(split=2), Step(merge=[1, 3])])
    corrected(plain, [Step(rename=1, name="mixed")])
    found = Index.open(index.path).senses("bank", n_senses=2)
    assert found[0].name[0] == "mixed"
    assert sum(len(one.rows) for one in found.senses) == 80
    for number, one in enumerate(found.senses):
        assert (found.groups[np.isin(index.rows("bank"), one.rows)] == number).all()
    # Senses that are given by examples have names of their own.
    like = {"water": ["We sat on the [bank] of the stream ."], "money": ["A [bank] lends money ."]}
    named = index.senses("bank", like=like)
    assert {one.name[0] for one in named.senses} == {"water", "money"}
    path = corrections_file(index)
    assert len(json.loads(path.read_bytes())["bank"]["steps"]) == 3
    with pytest.raises(ConfigError, match="'bank' has no sense 5; use 1 to 2"):
        corrected(plain, [Step(rename=5, name="x")])
    kept = json.loads(path.read_bytes())
    kept["bank"]["sizes"] = [1, 2]
    path.write_text(json.dumps(kept), "utf-8")
    with pytest.warns(UserWarning, match="were made for other senses"):
        assert len(index.senses("bank", n_senses=2)) == 2
    for hostile in ("{", '{"bank": {"sizes": [], "steps": [{"eval": 1}]}}', "[" * 10**5):
        path.write_text(hostile, "utf-8")
        with pytest.raises(FormatError, match="correct or remove it"):
            index.senses("bank", n_senses=2)
    path.write_text(json.dumps(kept), "utf-8")
    corrected(plain, forget=True)
    assert not path.exists()
    assert [one.name for one in index.senses("bank", n_senses=2).senses] == [
        one.name for one in plain.senses
    ]


def test_a_file_has_one_line_of_metadata(folder: Path) -> None:
    table = folder / "twice.tsv"
    table.write_text("file\tgenre\n1850\tletter\n1860\tletter\n1850\tnovel\n", "utf-8")
    with pytest.raises(InputError, match=r"twice.tsv.*4.*a second line for '1850'; keep one"):
        build_index([folder / "1850.txt"], folder / "none", words="bank", metadata=table)


def test_a_word_without_a_use_in_the_chosen_documents(folder: Path) -> None:
    (folder / "one.txt").write_text("The gate fell .\n", "utf-8")
    (folder / "two.txt").write_text("The wall fell .\n", "utf-8")
    (folder / "few.tsv").write_text("file\tgenre\none\tletter\ntwo\tnovel\n", "utf-8")
    files = [folder / "one.txt", folder / "two.txt"]
    index = build_index(files, folder / "few", min_count=1, metadata=folder / "few.tsv")
    part = index.where("genre=novel")
    for ask in (part.find, part.senses):
        with pytest.raises(
            InputError, match=r"no use of 'gate' in few .*; choose documents with uses"
        ):
            ask("gate")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Step(merge=[0, 2]), "has no sense 0; use 1 to 2"),
        (Step(merge=[-1, 2]), "has no sense -1; use 1 to 2"),
        (Step(merge=[2, 2]), "sense 2 alone cannot be merged"),
        (Step(rename=1, name="x" * 201), "has 201 characters; use at most 200"),
    ],
)
def test_a_wrong_correction_is_not_kept(index: Index, step: Step, message: str) -> None:
    plain = index.senses("bank", corrected=False, n_senses=2)
    with pytest.raises(ConfigError, match=message):
        corrected(plain, [step])
    assert not corrections_file(index).exists()


def test_corrections_are_found_in_any_case(index: Index) -> None:
    corrected(index.senses("bank", corrected=False, n_senses=2), [Step(rename=2, name="shore")])
    assert index.senses("Bank", n_senses=2)[1].name[0] == "shore"
    corrected(index.senses("BANK", corrected=False, n_senses=2), forget=True)
    assert not corrections_file(index).exists()
    corrected(index.senses("bank", corrected=False), forget=True)  # there are none
    assert not corrections_file(index).exists()
